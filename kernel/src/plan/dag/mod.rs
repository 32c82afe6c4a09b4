//! Any expression over distinct subtrees.
//!
//! [`compile`] makes functions of a node of an expression. Their results are kept for each distinct
//! element ([`memo`]); for a function that looks up, sideways or at the whole document, for each
//! distinct element and each thing that its surroundings come to, as far as the function can tell
//! ([`surroundings`]). So what ten thousand documents have in common is worked out once, whatever is asked.

mod beginnings;
mod compile;
mod free;
mod layers;
mod lists;
mod members;
mod memo;
mod numbered;
mod ops;
mod paths;
mod positions;
mod program;
mod reach;
mod surroundings;
mod values;
mod walks;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;

use crate::error::BudgetExceeded;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::image::ElementId;
use crate::xpath::ir::{Axis, BoolExpr, NumExpr, Step, Test};

use super::local::{Item, Local};
use super::reach::Reached;
use super::shared::AllShared;
use super::texts::Texts;
use compile::Compiler;
pub use compile::first_test;
pub use layers::Layers;
use memo::Memo;
use program::{Env, Func, FuncId, Kind, Program, Use};
use values::{Op, Value, Values};

/// Functions that wait for each other. The interpreter takes over what nests deeper: it recurses
/// less for a level.
const MAX_NESTING: u32 = 1_000;

/// The code of the number 1.
const ONE: Value = 2;

/// A node where it stands, as far as functions can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    item: Item,
    env: Env,
}

/// Evaluates one operator on many documents.
pub struct Dag<'a, 't> {
    local: Local<'a>,
    program: Program<'a>,
    memo: RefCell<Memo>,
    values: RefCell<Values<'a>>,
    /// What predicates with positions leave of lists.
    numbered: RefCell<HashMap<(usize, Value), Value>>,
    layers: Layers<'a, 't>,
    /// The elements of the last layer that have what a function needs in their subtree, where that are few.
    reached: Vec<Option<Rc<Reached>>>,
    depth: Cell<u32>,
    /// The fields of the surroundings that the function which is worked out has looked at.
    seen: Cell<Env>,
    /// The condition that is worked out next.
    begun: Cell<Option<*const BoolExpr>>,
    /// Set when an evaluation fails for another reason than its budget.
    is_beyond: Cell<bool>,
}

/// One column: a result for each document, or none where only the interpreter can tell.
type Column<T> = Evaluated<Option<Vec<T>>>;

/// The boolean of each document.
pub fn bools<'a>(
    layers: Layers<'a, '_>,
    shared: &AllShared<'a>,
    expr: &'a BoolExpr,
    documents: &[ElementId],
) -> Column<bool> {
    let ask = |dag: &Dag<'a, '_>, at| dag.bool(expr, at);
    column(layers, shared, documents, |compiler| compiler.bool(expr), ask)
}

/// The number of each document.
pub fn nums<'a>(
    layers: Layers<'a, '_>,
    shared: &AllShared<'a>,
    expr: &'a NumExpr,
    documents: &[ElementId],
) -> Column<f64> {
    let ask = |dag: &Dag<'a, '_>, at| dag.num(expr, at);
    column(layers, shared, documents, |compiler| compiler.num(expr), ask)
}

/// Whether the first node of a set is unequal to what all of the set are compared with.
pub fn unequal_firsts<'a>(
    texts: &Texts<'a>,
    expr: &'a BoolExpr,
    documents: &[ElementId],
) -> Column<bool> {
    let ask = |dag: &Dag<'a, '_>, at| dag.are_firsts_unequal(expr, at);
    let compile = |compiler: &mut Compiler<'a>| compiler.firsts(expr);
    column(Layers::only(texts), &texts.shared, documents, compile, ask)
}

/// Whether a boolean is answered here.
pub fn answers_bool(expr: &BoolExpr) -> bool {
    Compiler::default().bool(expr).is_some()
}

/// Whether a number is.
pub fn answers_num(expr: &NumExpr) -> bool {
    Compiler::default().num(expr).is_some()
}

fn column<'a, 't, T: Copy>(
    layers: Layers<'a, 't>,
    shared: &AllShared<'a>,
    documents: &[ElementId],
    compile: impl FnOnce(&mut Compiler<'a>) -> Option<Env>,
    ask: impl Fn(&Dag<'a, 't>, Context<Place>) -> Evaluated<T>,
) -> Column<T> {
    let mut compiler = Compiler::new(shared.clone());
    let Some(mask) = compile(&mut compiler) else { return Ok(None) };
    let dag = Dag::new(layers, compiler.program, documents.len())?;
    let mut results = Vec::with_capacity(documents.len());
    let mut known: HashMap<ElementId, T> = HashMap::new();
    for &document in documents {
        let row = dag.layers.row(document);
        if let Some(&result) = known.get(&row) {
            results.push(result);
            continue;
        }
        match dag.root(row, mask).and_then(|root| ask(&dag, Context::only(root))) {
            Ok(result) => results.push(result),
            Err(_) if dag.is_beyond.get() => return Ok(None),
            Err(error) => return Err(error),
        }
        known.extend(results.last().map(|&result| (row, result)));
    }
    Ok(Some(results))
}

impl<'a, 't> Dag<'a, 't> {
    fn new(layers: Layers<'a, 't>, program: Program<'a>, documents: usize) -> Evaluated<Self> {
        let reached = reach::of(&program, layers.last(), documents)?;
        let memo = Memo::new(program.funcs.len(), layers.size(), documents);
        let local = layers.first();
        Ok(Dag {
            local,
            program,
            memo: RefCell::new(memo),
            values: RefCell::default(),
            numbered: RefCell::default(),
            layers,
            reached,
            depth: Cell::new(0),
            seen: Cell::new(0),
            begun: Cell::new(None),
            is_beyond: Cell::new(false),
        })
    }

    /// The root element of a document: the context of a whole expression.
    fn root(&self, document: ElementId, mask: Env) -> Evaluated<Place> {
        let at = Place { item: Item::Element(document), env: self.of_document(document)? };
        let mut children = self.layers.children(document);
        if self.program.precedes && children.len() > 1 {
            // libxml2 leaves out a first child of the document, which other documents do not have.
            return self.beyond();
        }
        let Some(index) = children.position(|child| matches!(child, Item::Element(_))) else {
            return Ok(at);
        };
        let root = self.layers.children(document).nth(index).expect("it has just been there");
        let inside = self.inside(self.program.with_siblings(mask), document, at.env)?;
        Ok(Place { item: root, env: inside.env(index) })
    }

    /// An evaluation that the interpreter has to take over.
    fn beyond<T>(&self) -> Evaluated<T> {
        self.is_beyond.set(true);
        Err(BudgetExceeded)
    }

    /// A function's result for a node.
    fn ask(&self, id: FuncId, at: Place) -> Evaluated<Value> {
        let func = self.program.func(id);
        match (func.kind, at.item) {
            (Kind::Up(atom), _) => Ok(self.field(atom, at.env)),
            (Kind::Leaf(Use::Exists, _), _) => Ok(1),
            (Kind::Leaf(Use::Count, _), _) => Ok(ONE),
            (Kind::Pass(step, _), item) if !self.passes(step, item) => Ok(0),
            (Kind::Pass(step, then), _) if step.predicates.is_empty() => {
                self.local.budget.spend(1)?;
                self.ask(then, at)
            }
            (Kind::Inner(_) | Kind::Tree | Kind::Inside, Item::Attribute(_)) => Ok(0),
            (Kind::Inner(then), _) => self.ask(then, at),
            (Kind::Tree, _) => Ok(1),
            (Kind::Document, item) => Ok(Value::from(self.layers.is_document(item))),
            (Kind::Inside, item) => Ok(Value::from(!self.layers.is_document(item))),
            (_, Item::Element(element)) => self.recalled(id, func, element, at.env),
            _ => self.worked_out(func, at),
        }
    }

    fn recalled(
        &self,
        id: FuncId,
        func: &Func<'a>,
        element: ElementId,
        env: Env,
    ) -> Evaluated<Value> {
        let env = env & func.mask;
        let place = self.layers.place(element);
        if let Some((known, seen)) = self.memo.borrow().get(id, place, env) {
            self.see(if seen { func.mask } else { 0 });
            return Ok(known);
        }
        let depth = self.depth.get();
        if depth == MAX_NESTING {
            return self.beyond();
        }
        self.depth.set(depth + 1);
        let outer = self.seen.replace(0);
        let found = self.worked_out(func, Place { item: Item::Element(element), env });
        let seen = self.seen.get() & func.mask;
        self.seen.set(outer | seen);
        self.depth.set(depth);
        let found = found?;
        self.memo.borrow_mut().insert(id, place, (env, seen != 0), found);
        Ok(found)
    }

    /// Notes that fields of the surroundings have been looked at.
    #[inline]
    fn see(&self, fields: Env) {
        self.seen.set(self.seen.get() | fields);
    }

    fn worked_out(&self, func: &Func<'a>, at: Place) -> Evaluated<Value> {
        self.local.budget.spend(1)?;
        match func.kind {
            Kind::Leaf(used, test) => self.leaf(used, test, at.item),
            Kind::Pass(step, then) => {
                if !self.holds(&step.predicates, at)? {
                    return Ok(0);
                }
                self.ask(then, at)
            }
            Kind::Holds(predicate, then) => match self.bool(predicate, Context::only(at))? {
                true => self.ask(then, at),
                false => Ok(0),
            },
            Kind::Where(test, then) => match self.ask(test, at)? {
                0 => Ok(0),
                _ => self.ask(then, at),
            },
            Kind::Both(a, b) => {
                let first = self.ask(a, at)?;
                if func.op.is_final(first) {
                    return Ok(first);
                }
                self.join(func.op, first, self.ask(b, at)?)
            }
            Kind::Condition(expr) => {
                self.begun.set(Some(std::ptr::from_ref(expr)));
                Ok(Value::from(self.bool(expr, Context::only(at))?))
            }
            Kind::Children(of) => self.children(func, 0, of, at),
            Kind::Subtree(of) => {
                let own = self.ask(of, at)?;
                let Item::Element(element) = at.item else { return Ok(own) };
                self.subtrees(func, own, element, at.env, of)
            }
            Kind::Attributes(of) => self.attributes(func, of, at),
            Kind::Listed(step, then) => self.listed(func, step, then, at),
            Kind::Selected(..) => self.selected(func, at),
            Kind::Entry(number) => self.entry(func, number, at),
            Kind::Numbered(number) => self.numbered(func, number, at),
            _ => Ok(0),
        }
    }

    fn holds(&self, predicates: &'a [BoolExpr], at: Place) -> Evaluated<bool> {
        for predicate in predicates {
            if !self.bool(predicate, Context::only(at))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn join(&self, op: Op, a: Value, b: Value) -> Evaluated<Value> {
        match op {
            Op::Any => Ok(a | b),
            // Small integers are their own codes, twice.
            Op::Add if (a | b) & 1 == 0 && a < 1 << 20 && b < 1 << 20 => Ok(a + b),
            _ => Ok(self.values.borrow_mut().join(op, a, b)),
        }
    }

    /// Whether a condition is being worked out, rather than asked for.
    fn is_begun(&self, expr: &BoolExpr) -> bool {
        let is_same = self.begun.get().is_some_and(|begun| std::ptr::eq(begun, expr));
        if is_same {
            self.begun.set(None);
        }
        is_same
    }

    /// Whether a node passes the test of a step that led to it.
    #[inline]
    fn passes(&self, step: &Step, item: Item) -> bool {
        let (texts, item) = self.layers.texts(item);
        match (item, step.axis, &step.test) {
            (Item::Attribute(_), Axis::Attribute, Test::Node | Test::Any) => true,
            (Item::Attribute(pair), Axis::Attribute, Test::Name(name) | Test::AnyIn(name)) => {
                self.local.names[*name].matches(texts.local.store.pair(pair).0)
            }
            (Item::Attribute(_), Axis::Attribute, _) | (_, Axis::Attribute, _) => false,
            (item, _, test) => texts.local.passes(item, test),
        }
    }
}
