//! The operators outside of paths, for all documents at once.

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashMap;

use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::image::{Child, ElementId, Skeleton, Store};
use crate::interp::{Interpreter, outermost};
use crate::tree::{Keep, Node, Tree, Whole};
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{BoolExpr, Cmp, NodeSet, NumExpr, Start, Step, StrExpr};
use crate::xpath::number;
use crate::xpath::parts::{Part, Use};

use super::anchors::{Split, ValueTest, constant, split};
use super::common::{Key, Known, Question};
use super::dag;
use super::local::{Item, Local};
use super::looks::Look;
use super::needs::{Names, Needs, Read};
use super::projection::Projection;
use super::reach::Reached;
use super::search::Search;
use super::support;
use super::texts::Texts;

/// About how many elements a walk through a document visits. Deciding between a walk through some
/// documents and a look at all anchors needs no better guess.
const WALK: usize = 150;

/// One element of so many documents is looked up rather than what the documents have in common.
const SELECTIVE: usize = 16;

/// So few documents are walked through: what tables and marks of all elements cost does not pay.
pub(super) const FEW: usize = 8;

/// Evaluates one expression over the documents of one store.
pub struct Columns<'a> {
    pub(super) local: Local<'a>,
    pub(super) texts: Texts<'a>,
    tree: RefCell<Tree>,
    /// Where the documents differ from what they have in common, for an operator.
    pub(super) known: RefCell<HashMap<Key, Rc<Known>>>,
    /// What the documents have in common, and the columns over it.
    pub(super) common: Option<Common<'a>>,
}

/// A skeleton, and columns over it.
pub struct Common<'a> {
    pub skeleton: &'a Skeleton,
    pub columns: Box<Columns<'a>>,
}

/// A path that can be answered without expanding documents.
pub struct DocumentPath<'a> {
    pub absolute: bool,
    pub steps: &'a [Step],
}

impl<'a> Columns<'a> {
    pub fn new(store: &'a Store, names: &'a [BoundName], budget: &'a Budget) -> Self {
        let local = Local { store, names, budget };
        let texts = Texts::new(local, &[]);
        Columns { local, texts, tree: RefCell::default(), known: RefCell::default(), common: None }
    }

    /// As `new`, of a store whose documents have a skeleton.
    pub fn over(mut self, skeleton: &'a Skeleton) -> Self {
        let Local { names, budget, .. } = self.local;
        let mut columns = Columns::new(skeleton.store(), names, budget);
        if let Some(next) = skeleton.next() {
            columns = columns.over(next);
        }
        self.texts = Texts::new(self.local, skeleton.lengths());
        self.texts.shared = columns.texts.shared.clone();
        self.common = Some(Common { skeleton, columns: Box::new(columns) });
        self
    }

    /// The boolean of each document.
    pub fn bool(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<Vec<bool>> {
        self.local.budget.spend(documents.len())?;
        match expr {
            BoolExpr::Const(value) => Ok(vec![*value; documents.len()]),
            BoolExpr::And(a, b) => self.both(a, b, true, documents),
            BoolExpr::Or(a, b) => self.both(a, b, false, documents),
            BoolExpr::Not(a) => Ok(map(self.bool(a, documents)?, |value| !value)),
            BoolExpr::Number(a) => Ok(map(self.num(a, documents)?, number::truth)),
            BoolExpr::Numbers(cmp, a, b) => {
                let (a, b) = (self.num(a, documents)?, self.num(b, documents)?);
                Ok(zip(a, b, |a, b| cmp.numbers(a, b)))
            }
            BoolExpr::Sets(Cmp::Ne, ..) => self.unequal(expr, documents),
            BoolExpr::SetText(true, _, b) if !matches!(b, StrExpr::Const(_)) => {
                self.unequal(expr, documents)
            }
            _ if self.common.is_some() && !self.is_selective(expr, documents)? => {
                self.in_common(Question::bool(expr), documents, &|columns, documents| {
                    columns.leaf(expr, documents)
                })
            }
            _ => self.leaf(expr, documents),
        }
    }

    /// An operator that has paths for operands.
    fn leaf(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<Vec<bool>> {
        match expr {
            BoolExpr::Texts(..) | BoolExpr::Contains(..) | BoolExpr::StartsWith(..) => {
                self.compared(expr, documents)
            }
            BoolExpr::Exists(set) => self.any(expr, set, ValueTest::Present, documents),
            BoolExpr::SetText(false, set, StrExpr::Const(wanted)) => {
                self.any(expr, set, ValueTest::Equals(wanted), documents)
            }
            BoolExpr::SetText(true, set, StrExpr::Const(wanted)) => {
                self.any(expr, set, ValueTest::Differs(wanted), documents)
            }
            BoolExpr::SetNumber(cmp, set, b) => match constant(b) {
                Some(wanted) => self.any(expr, set, ValueTest::Number(*cmp, wanted), documents),
                None => self.whole_bool(expr, documents),
            },
            _ => self.whole_bool(expr, documents),
        }
    }

    /// Whether any value of a set is unequal to another: mostly the first ones are, as their beginnings say.
    fn unequal(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<Vec<bool>> {
        let firsts = dag::unequal_firsts(&self.texts, expr, documents)?;
        let mut verdicts = firsts.unwrap_or_else(|| vec![false; documents.len()]);
        let undecided = chosen(documents, &verdicts, false);
        if !undecided.is_empty() {
            let whole =
                self.in_common(Question::bool(expr), &undecided, &|columns, documents| {
                    columns.whole_bool(expr, documents)
                })?;
            settle(&mut verdicts, false, whole);
        }
        Ok(verdicts)
    }

    /// Whether few elements need be looked at.
    fn is_selective(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<bool> {
        let (set, goal) = match expr {
            BoolExpr::Exists(set) => (set, ValueTest::Present),
            BoolExpr::SetText(false, set, StrExpr::Const(wanted)) => {
                (set, ValueTest::Equals(wanted))
            }
            // The first node of a plain path is soon found, and its string-value begins soon.
            _ => {
                let only = Look::only(Part::Bool(expr)).map(|(set, _)| set);
                return Ok(only.is_some_and(is_plain));
            }
        };
        let NodeSet::Path(Start::Root, steps) = set else { return Ok(false) };
        let Some(split @ Split::Elements(..)) = split(steps) else { return Ok(false) };
        if !support::steps(steps, Use::Any) || self.reads_deep(&Needs::of_bool(expr)) {
            return Ok(false);
        }
        Ok(self.search().cost(split, goal)? <= documents.len() / SELECTIVE)
    }

    /// Whether string-values of elements with children are read, which are kept by distinct subtree.
    fn reads_deep(&self, needs: &Needs<'a>) -> bool {
        let Local { store, names, .. } = self.local;
        let is_deep = |&name: &usize| {
            let lists = names[name].ids().iter().map(|&name| store.elements_named(name));
            lists
                .filter_map(|list| list.last())
                .any(|&id| store.children(id).any(|child| matches!(child, Child::Element(_))))
        };
        let tested = needs.looks.iter().filter_map(|(read, _)| match read {
            Read::Element(name) => Some(name),
            _ => None,
        });
        match &needs.values {
            Names::All => true,
            _ if needs.look_at(Read::AnyElement) || needs.look_at(Read::Document) => true,
            Names::Some(names) => names.iter().chain(tested).any(is_deep),
        }
    }

    /// A comparison of strings. Most are of the first node of a path and a text.
    fn compared(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<Vec<bool>> {
        if let Some((NodeSet::Path(start, steps), test)) = dag::first_test(expr)
            && !self.reads_deep(&Needs::of_bool(expr))
        {
            let read = |item| self.texts.passes(item, &test);
            if let Some(column) = self.first_of(start, steps, documents, test.holds(""), read)? {
                let unequal = matches!(expr, BoolExpr::Texts(true, ..));
                return Ok(map(column, |holds| holds != unequal));
            }
        }
        self.whole_bool(expr, documents)
    }

    /// `and` when `going` is true, `or` when it is false: the right side is only asked about
    /// documents that the left one leaves undecided.
    fn both(
        &self,
        a: &'a BoolExpr,
        b: &'a BoolExpr,
        going: bool,
        documents: &[ElementId],
    ) -> Evaluated<Vec<bool>> {
        let mut verdicts = self.bool(a, documents)?;
        let undecided = chosen(documents, &verdicts, going);
        if !undecided.is_empty() {
            settle(&mut verdicts, going, self.bool(b, &undecided)?);
        }
        Ok(verdicts)
    }

    /// The number of each document.
    fn num(&self, expr: &'a NumExpr, documents: &[ElementId]) -> Evaluated<Vec<f64>> {
        self.local.budget.spend(documents.len())?;
        match expr {
            NumExpr::Const(value) => Ok(vec![*value; documents.len()]),
            NumExpr::Arith(arith, a, b) => {
                let (a, b) = (self.num(a, documents)?, self.num(b, documents)?);
                Ok(zip(a, b, |a, b| arith.apply(a, b)))
            }
            NumExpr::Neg(a) => Ok(map(self.num(a, documents)?, |value| -value)),
            NumExpr::Round(rounding, a) => {
                Ok(map(self.num(a, documents)?, |value| number::round(*rounding, value)))
            }
            NumExpr::Bool(a) => {
                Ok(map(self.bool(a, documents)?, |value| f64::from(u8::from(value))))
            }
            _ if self.common.is_some()
                && !Look::only(Part::Num(expr)).is_some_and(|(set, _)| is_plain(set)) =>
            {
                self.in_common(Question::num(expr), documents, &|columns, documents| {
                    columns.number(expr, documents)
                })
            }
            _ => self.number(expr, documents),
        }
    }

    /// A number that has paths for operands.
    fn number(&self, expr: &'a NumExpr, documents: &[ElementId]) -> Evaluated<Vec<f64>> {
        match expr {
            NumExpr::Text(a) | NumExpr::Length(a) => {
                let is_length = matches!(expr, NumExpr::Length(_));
                if let StrExpr::First(NodeSet::Path(start, steps)) = &**a
                    && !self.reads_deep(&Needs::of_num(expr))
                {
                    let none = if is_length { 0.0 } else { f64::NAN };
                    let read = |item| match is_length {
                        true => self.texts.characters(item).map(|count| count as f64),
                        false => self.texts.number(item),
                    };
                    if let Some(column) = self.first_of(start, steps, documents, none, read)? {
                        return Ok(column);
                    }
                }
                self.whole_num(expr, documents)
            }
            NumExpr::Count(set) | NumExpr::Sum(set) => {
                if self.reads_deep(&Needs::of_num(expr)) {
                    return self.whole_num(expr, documents);
                }
                let counted = matches!(expr, NumExpr::Count(_));
                let totals = match document_path(set, Use::Each) {
                    Some(path) => self.totals(&path, counted, documents)?,
                    None => self.union_totals(set, counted, documents)?,
                };
                match totals {
                    Some(totals) => Ok(totals),
                    None => self.whole_num(expr, documents),
                }
            }
            _ => self.whole_num(expr, documents),
        }
    }

    /// A boolean by distinct subtrees, or else by the interpreter.
    fn whole_bool(&self, expr: &'a BoolExpr, documents: &[ElementId]) -> Evaluated<Vec<bool>> {
        let layers = self.layers(Question::bool(expr), documents)?;
        match dag::bools(layers, &self.texts.shared, expr, documents)? {
            Some(column) => Ok(column),
            None => self.split(Question::bool(expr), documents, &|columns, documents| {
                let needs = Needs::of_bool(expr);
                columns.interpret(documents, &needs, |one, at| one.bool(expr, at))
            }),
        }
    }

    fn whole_num(&self, expr: &'a NumExpr, documents: &[ElementId]) -> Evaluated<Vec<f64>> {
        let layers = self.layers(Question::num(expr), documents)?;
        match dag::nums(layers, &self.texts.shared, expr, documents)? {
            Some(column) => Ok(column),
            None => self.split(Question::num(expr), documents, &|columns, documents| {
                let needs = Needs::of_num(expr);
                columns.interpret(documents, &needs, |one, at| one.num(expr, at))
            }),
        }
    }

    /// Whether any node of a set in each document meets the goal. `expr` is the whole operator.
    fn any(
        &self,
        expr: &'a BoolExpr,
        set: &'a NodeSet,
        goal: ValueTest<'a>,
        documents: &[ElementId],
    ) -> Evaluated<Vec<bool>> {
        let paths = document_paths(set, Use::Any);
        let Some(paths) = paths.filter(|_| !self.reads_deep(&Needs::of_bool(expr))) else {
            return self.whole_bool(expr, documents);
        };
        let mut verdicts = vec![false; documents.len()];
        let mut are_left = false;
        for path in &paths {
            let undecided = chosen(documents, &verdicts, false);
            match self.worthwhile(path, goal, &undecided)? {
                Some(split) if !self.walks_deep(path, split, goal, documents)? => {
                    settle(&mut verdicts, false, self.leads_to(split, goal, &undecided)?);
                }
                None if documents.len() <= FEW => {
                    let one = |&document: &ElementId| {
                        let start = self.start(path.absolute, document)?;
                        self.search().leads_to(start, path.steps, goal)
                    };
                    let found: Evaluated<Vec<bool>> = undecided.iter().map(one).collect();
                    settle(&mut verdicts, false, found?);
                }
                _ => are_left = true,
            }
        }
        if are_left {
            let undecided = chosen(documents, &verdicts, false);
            settle(&mut verdicts, false, self.whole_bool(expr, &undecided)?);
        }
        Ok(verdicts)
    }

    /// Whether predicates walk through much of the documents, of which distinct subtrees are better asked.
    fn walks_deep(
        &self,
        path: &DocumentPath<'a>,
        split: Split<'a>,
        goal: ValueTest<'a>,
        documents: &[ElementId],
    ) -> Evaluated<bool> {
        Ok(documents.len() > FEW
            && support::walks_deep(path.steps)
            && self.search().cost(split, goal)? > documents.len())
    }

    /// Whether a path leads to a node that meets the goal in each document.
    fn leads_to(
        &self,
        split: Split<'a>,
        goal: ValueTest<'a>,
        documents: &[ElementId],
    ) -> Evaluated<Vec<bool>> {
        let hits = self.search().hits(split, goal)?;
        let reached = Reached::from(self.local.store, &hits, self.local.budget)?;
        Ok(documents.iter().map(|&document| reached.contains(document)).collect())
    }

    /// How to split a path at its anchors, where that costs less than walking every document.
    pub(super) fn worthwhile(
        &self,
        path: &DocumentPath<'a>,
        goal: ValueTest<'a>,
        documents: &[ElementId],
    ) -> Evaluated<Option<Split<'a>>> {
        let Some(split) = split(path.steps).filter(|_| path.absolute) else { return Ok(None) };
        let walks = documents.len() * WALK;
        let bookkeeping = self.local.store.elements().len() / 64;
        let pays = bookkeeping < walks && self.search().cost(split, goal)? < walks;
        Ok(pays.then_some(split))
    }

    pub(super) fn search(&self) -> Search<'a, '_> {
        Search { local: &self.local, texts: &self.texts }
    }

    /// Where a path begins: at the document, or at its root element.
    pub(super) fn start(&self, absolute: bool, document: ElementId) -> Evaluated<Item> {
        if !absolute {
            for child in self.local.store.children(document) {
                self.local.budget.spend(1)?;
                if let Child::Element(root) = child {
                    return Ok(Item::Element(root));
                }
            }
        }
        Ok(Item::Element(document))
    }

    /// Asks the interpreter about documents without what the expression does not need.
    fn interpret<T: Clone>(
        &self,
        documents: &[ElementId],
        needs: &Needs<'a>,
        ask: impl Fn(&Interpreter<'a, '_>, Context<Node>) -> Evaluated<T>,
    ) -> Evaluated<Vec<T>> {
        let Some(projection) = self.projection(needs, documents)? else {
            return documents
                .iter()
                .map(|&document| self.expanded(document, &Whole, &ask))
                .collect();
        };
        projection.each(documents, |document| self.expanded(document, &projection, &ask))
    }

    fn expanded<T>(
        &self,
        document: ElementId,
        keep: &impl Keep,
        ask: impl Fn(&Interpreter<'a, '_>, Context<Node>) -> Evaluated<T>,
    ) -> Evaluated<T> {
        let Local { store, names, budget } = self.local;
        let mut tree = self.tree.borrow_mut();
        tree.expand(store, document, keep, budget)?;
        ask(&Interpreter { store, names, tree: &tree, budget }, outermost(&tree))
    }

    /// None where walking the documents costs less.
    fn projection(
        &self,
        needs: &Needs<'a>,
        documents: &[ElementId],
    ) -> Evaluated<Option<Projection<'a>>> {
        Projection::new(needs, self.local, documents, documents.len() * WALK)
    }
}

/// Whether a set is an absolute path that only leads down, without predicates.
fn is_plain(set: &NodeSet) -> bool {
    match set {
        NodeSet::Path(Start::Root, steps) => {
            steps.iter().all(|step| step.axis.is_downward() && step.predicates.is_empty())
        }
        _ => false,
    }
}

/// Whether a start is the document (true) or the context node (false).
pub(super) fn origin(start: &Start) -> Option<bool> {
    match start {
        Start::Root => Some(true),
        Start::Context => Some(false),
        Start::Set(_) => None,
    }
}

/// The set as a path that needs no expanded document.
pub(super) fn document_path(set: &NodeSet, used: Use) -> Option<DocumentPath<'_>> {
    match set {
        NodeSet::Path(start, steps) if support::steps(steps, used) => {
            Some(DocumentPath { absolute: origin(start)?, steps })
        }
        _ => None,
    }
}

/// The paths that a union joins, or the one that a set is, if no document need be expanded.
pub(super) fn document_paths(set: &NodeSet, used: Use) -> Option<Vec<DocumentPath<'_>>> {
    match set {
        NodeSet::Union(a, b) => {
            let mut paths = document_paths(a, used)?;
            paths.extend(document_paths(b, used)?);
            Some(paths)
        }
        _ => Some(vec![document_path(set, used)?]),
    }
}

/// The documents whose verdict is `verdict`.
fn chosen(documents: &[ElementId], verdicts: &[bool], verdict: bool) -> Vec<ElementId> {
    let both = documents.iter().zip(verdicts);
    both.filter(|&(_, &found)| found == verdict).map(|(&document, _)| document).collect()
}

/// Replaces the verdicts that are `verdict`, in order.
fn settle(verdicts: &mut [bool], verdict: bool, replacements: Vec<bool>) {
    let open = verdicts.iter_mut().filter(|found| **found == verdict);
    open.zip(replacements).for_each(|(found, replacement)| *found = replacement);
}

fn map<T, U>(column: Vec<T>, apply: impl Fn(T) -> U) -> Vec<U> {
    column.into_iter().map(apply).collect()
}

fn zip<T, U, V>(a: Vec<T>, b: Vec<U>, apply: impl Fn(T, U) -> V) -> Vec<V> {
    a.into_iter().zip(b).map(|(a, b)| apply(a, b)).collect()
}
