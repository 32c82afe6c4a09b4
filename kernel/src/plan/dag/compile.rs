//! Expressions to functions of a node.
//!
//! A path is a chain of functions from its end to its start: each step is "what the rest gives for
//! the nodes that I lead to, joined". A step that leads up or sideways reads a field of the
//! surroundings instead, which is worked out on the way down.

use super::program::{Atom, Chosen, Env, Func, FuncId, Kind, Program, Use, Way};
use super::values::Op;
use crate::plan::anchors::{ValueTest, constant};
use crate::xpath::ir::{
    Axis, BoolExpr, Cmp, NodeSet, NumExpr, Positional, Start, Step, StrExpr, Test,
};

/// Bits of a field that is no boolean.
const WIDE: u32 = 24;

/// Compiles one operator. None stands for what only the interpreter can evaluate.
#[derive(Default)]
pub struct Compiler<'a> {
    pub program: Program<'a>,
    bits: u32,
}

/// The nodes that the steps so far may lead to, from one node.
#[derive(Clone, Copy, PartialEq)]
enum Spread {
    One,
    /// Several, none of which contains another.
    Apart,
    Nested,
}

impl<'a> Compiler<'a> {
    // -- operators -----------------------------------------------------------------------------

    pub fn bool(&mut self, expr: &'a BoolExpr) -> Option<Env> {
        match expr {
            BoolExpr::Const(_) => Some(0),
            BoolExpr::And(a, b) | BoolExpr::Or(a, b) => Some(self.bool(a)? | self.bool(b)?),
            BoolExpr::Not(a) => self.bool(a),
            BoolExpr::Exists(set) => self.used(set, Use::Exists, None),
            BoolExpr::Number(a) => self.num(a),
            BoolExpr::Text(a) => self.str(a),
            BoolExpr::Numbers(_, a, b) => Some(self.num(a)? | self.num(b)?),
            BoolExpr::Texts(..) | BoolExpr::Contains(..) | BoolExpr::StartsWith(..) => {
                match first_test(expr) {
                    Some((set, test)) => self.used(set, Use::FirstTest, Some(test)),
                    None => {
                        let (BoolExpr::Texts(_, a, b)
                        | BoolExpr::Contains(a, b)
                        | BoolExpr::StartsWith(a, b)) = expr
                        else {
                            return None;
                        };
                        Some(self.str(a)? | self.str(b)?)
                    }
                }
            }
            BoolExpr::SetNumber(cmp, set, b) => match constant(b) {
                Some(number) => self.used(set, Use::Test, Some(ValueTest::Number(*cmp, number))),
                None => Some(self.used(set, Use::Values, None)? | self.num(b)?),
            },
            BoolExpr::SetText(unequal, set, StrExpr::Const(text)) => {
                let test =
                    if *unequal { ValueTest::Differs(text) } else { ValueTest::Equals(text) };
                self.used(set, Use::Test, Some(test))
            }
            BoolExpr::SetText(_, set, b) => Some(self.used(set, Use::Values, None)? | self.str(b)?),
            BoolExpr::Sets(cmp, a, b) => {
                let (of_a, of_b) = compared(*cmp);
                Some(self.used(a, of_a, None)? | self.used(b, of_b, None)?)
            }
            BoolExpr::Lang(a) => Some(self.str(a)? | self.language()?),
        }
    }

    pub fn num(&mut self, expr: &'a NumExpr) -> Option<Env> {
        match expr {
            NumExpr::Const(_) | NumExpr::Position | NumExpr::Last => Some(0),
            NumExpr::Arith(_, a, b) => Some(self.num(a)? | self.num(b)?),
            NumExpr::Neg(a) | NumExpr::Round(_, a) => self.num(a),
            NumExpr::Count(set) => self.used(set, Use::Count, None),
            NumExpr::Sum(set) => self.used(set, Use::Sum, None),
            NumExpr::Text(a) | NumExpr::Length(a) => match (expr, &**a) {
                (NumExpr::Text(_), StrExpr::First(set)) => self.used(set, Use::Number, None),
                (_, StrExpr::First(set)) => self.used(set, Use::Length, None),
                _ => self.str(a),
            },
            NumExpr::Bool(a) => self.bool(a),
        }
    }

    pub fn str(&mut self, expr: &'a StrExpr) -> Option<Env> {
        match expr {
            StrExpr::Const(_) => Some(0),
            StrExpr::First(set) => self.used(set, Use::First, None),
            StrExpr::Name(kind, set) => self.used(set, Use::Name(*kind), None),
            StrExpr::Number(a) => self.num(a),
            StrExpr::Bool(a) => self.bool(a),
            StrExpr::Concat(parts) => {
                parts.iter().try_fold(0, |mask, part| Some(mask | self.str(part)?))
            }
            StrExpr::Before(a, b) | StrExpr::After(a, b) => Some(self.str(a)? | self.str(b)?),
            StrExpr::Substring(a, from, length) => {
                let mut mask = self.str(a)? | self.num(from)?;
                if let Some(length) = length {
                    mask |= self.num(length)?;
                }
                Some(mask)
            }
            StrExpr::Normalize(a) => self.str(a),
            StrExpr::Translate(a, b, c) => Some(self.str(a)? | self.str(b)? | self.str(c)?),
        }
    }

    fn used(&mut self, set: &'a NodeSet, used: Use, test: Option<ValueTest<'a>>) -> Option<Env> {
        let leaf = self.func(used.op(), Kind::Leaf(used, test), 0);
        let func = self.set(set, leaf)?;
        self.program.enter(set, used, func);
        Some(self.program.func(func).mask)
    }

    // -- sets ----------------------------------------------------------------------------------

    /// What `then` gives for all nodes of a set, of the node that the set starts from.
    pub fn set(&mut self, set: &'a NodeSet, then: FuncId) -> Option<FuncId> {
        let op = self.program.func(then).op;
        match set {
            NodeSet::Path(Start::Context, steps) => {
                is_clean(op, steps, Spread::One).then_some(())?;
                self.steps(steps, then)
            }
            NodeSet::Path(Start::Root, steps) => {
                if !is_clean(op, steps, Spread::One) {
                    return self.members(set, then);
                }
                let func = self.steps(steps, then)?;
                self.of_document(func)
            }
            NodeSet::Path(Start::Set(inner), steps) => {
                let is_clean = op.is_idempotent()
                    || steps.is_empty()
                    || is_selection(inner) && is_clean(op, steps, Spread::Nested);
                if !is_clean {
                    return self.members(set, then);
                }
                let then = self.steps(steps, then)?;
                self.set(inner, then)
            }
            NodeSet::Union(a, b) if op.is_idempotent() => {
                let (a, b) = (self.set(a, then)?, self.set(b, then)?);
                Some(self.both(op, a, b))
            }
            NodeSet::Union(..) => self.members(set, then),
            NodeSet::Filter(inner, predicate) if predicate.is_positional() => {
                self.selected(inner, predicate, then)
            }
            NodeSet::Filter(inner, predicate) => {
                let mask = self.bool(predicate)? | self.program.func(then).mask;
                let then = self.func(op, Kind::Holds(predicate, then), mask);
                self.set(inner, then)
            }
        }
    }

    fn steps(&mut self, steps: &'a [Step], then: FuncId) -> Option<FuncId> {
        steps.iter().rev().try_fold(then, |then, step| self.step(step, then))
    }

    fn step(&mut self, step: &'a Step, then: FuncId) -> Option<FuncId> {
        let op = self.program.func(then).op;
        if step.axis == Axis::SelfNode && step.test == Test::Node && step.predicates.is_empty() {
            return Some(then);
        }
        let is_single = matches!(step.axis, Axis::SelfNode | Axis::Parent);
        if step.positional && !is_single {
            let mask = self.predicates(step)? | self.program.func(then).mask;
            return match step.axis {
                Axis::Child | Axis::Attribute => {
                    Some(self.downward(op, Kind::Listed(step, then), mask))
                }
                Axis::FollowingSibling | Axis::PrecedingSibling => {
                    self.atom(op, Way::Sibling(step), then, mask)
                }
                _ => None,
            };
        }
        let pass = self.pass(step, then)?;
        let pass_mask = self.program.func(pass).mask;
        match step.axis {
            Axis::SelfNode => Some(pass),
            Axis::Child => Some(self.downward(op, Kind::Children(pass), pass_mask)),
            Axis::Attribute => Some(self.downward(op, Kind::Attributes(pass), pass_mask)),
            Axis::DescendantOrSelf => Some(self.subtree(op, pass)),
            Axis::Descendant => {
                let all = self.subtree(op, pass);
                let mask = self.program.func(all).mask;
                Some(self.downward(op, Kind::Children(all), mask))
            }
            Axis::Parent => self.atom(op, Way::Parent, pass, pass_mask),
            Axis::Ancestor => self.atom(op, Way::Ancestor, pass, pass_mask),
            Axis::AncestorOrSelf => {
                let above = self.atom(op, Way::Ancestor, pass, pass_mask)?;
                Some(self.both(op, above, pass))
            }
            Axis::FollowingSibling => self.atom(op, Way::FollowingSibling, pass, pass_mask),
            Axis::PrecedingSibling => self.atom(op, Way::PrecedingSibling, pass, pass_mask),
            Axis::Following | Axis::Preceding => {
                let all = self.subtree(op, pass);
                let mask = self.program.func(all).mask;
                if step.axis == Axis::Following {
                    return self.atom(op, Way::Following, all, mask);
                }
                self.program.precedes = true;
                self.atom(op, Way::Preceding, all, mask)
            }
        }
    }

    fn pass(&mut self, step: &'a Step, then: FuncId) -> Option<FuncId> {
        let Func { op, mask, .. } = *self.program.func(then);
        let mask = mask | self.predicates(step)?;
        Some(self.func(op, Kind::Pass(step, then), mask))
    }

    fn predicates(&mut self, step: &'a Step) -> Option<Env> {
        step.predicates.iter().try_fold(0, |mask, predicate| Some(mask | self.bool(predicate)?))
    }

    // -- sets as questions to every node of a document -----------------------------------------

    /// What `then` gives for all nodes of a set of the document, each once and in document order.
    fn members(&mut self, set: &'a NodeSet, then: FuncId) -> Option<FuncId> {
        let op = self.program.func(then).op;
        let member = self.member(set)?;
        let found = self.filtered(op, member, then);
        let all = self.everywhere(op, found, may_be_attributes(set));
        self.of_document(all)
    }

    fn filtered(&mut self, op: Op, test: FuncId, then: FuncId) -> FuncId {
        let mask = self.program.func(test).mask | self.program.func(then).mask;
        self.func(op, Kind::Where(test, then), mask)
    }

    /// A function of all nodes of a subtree, in document order.
    fn everywhere(&mut self, op: Op, func: FuncId, attributes: bool) -> FuncId {
        let each = if attributes { self.with_attributes(op, func) } else { func };
        self.subtree(op, each)
    }

    fn with_attributes(&mut self, op: Op, func: FuncId) -> FuncId {
        let mask = self.program.func(func).mask;
        let attributes = self.downward(op, Kind::Attributes(func), mask);
        self.both(op, func, attributes)
    }

    fn selected(
        &mut self,
        inner: &'a NodeSet,
        predicate: &'a BoolExpr,
        then: FuncId,
    ) -> Option<FuncId> {
        let member = self.member(inner)?;
        let one = self.func(Op::Add, Kind::Leaf(Use::Count, None), 0);
        let counted = self.filtered(Op::Add, member, one);
        let amount = self.everywhere(Op::Add, counted, may_be_attributes(inner));
        let Func { op, mask, .. } = *self.program.func(then);
        let mask = mask
            | self.bool(predicate)?
            | self.program.func(amount).mask
            | self.program.func(member).mask;
        let mask = self.lasting(mask);
        let func = self.func(op, Kind::Selected(Chosen { member, amount }, predicate, then), mask);
        self.program.funcs[func as usize].below = self.program.with_siblings(mask);
        self.of_document(func)
    }

    /// Whether a node is in a set of the document.
    fn member(&mut self, set: &'a NodeSet) -> Option<FuncId> {
        match set {
            NodeSet::Path(start, steps) => {
                let mut member = match start {
                    Start::Root => self.func(Op::Any, Kind::Document, 0),
                    Start::Set(inner) => self.member(inner)?,
                    Start::Context => return None,
                };
                for step in steps {
                    member = self.member_after(step, member)?;
                }
                Some(member)
            }
            NodeSet::Union(a, b) => {
                let (a, b) = (self.member(a)?, self.member(b)?);
                Some(self.both(Op::Any, a, b))
            }
            NodeSet::Filter(_, predicate) if predicate.is_positional() => None,
            NodeSet::Filter(inner, predicate) => {
                let member = self.member(inner)?;
                let mask = self.bool(predicate)? | self.program.func(member).mask;
                Some(self.func(Op::Any, Kind::Holds(predicate, member), mask))
            }
        }
    }

    /// Whether a step leads to a node from one that has `before`: the step backwards.
    fn member_after(&mut self, step: &'a Step, before: FuncId) -> Option<FuncId> {
        let any = Op::Any;
        let Func { kind, mask, .. } = *self.program.func(before);
        let is_single = matches!(step.axis, Axis::SelfNode | Axis::Parent);
        if step.positional && !is_single {
            (step.axis == Axis::Child).then_some(())?;
            let mask = mask | self.predicates(step)?;
            let up = self.atom(any, Way::Listed(step), before, mask)?;
            let mask = self.program.func(up).mask;
            return Some(self.func(any, Kind::Inner(up), mask));
        }
        let back = match step.axis {
            Axis::SelfNode => before,
            // Whatever is in the document stands below it.
            Axis::Child if matches!(kind, Kind::Tree) => self.func(any, Kind::Inside, 0),
            Axis::Descendant if matches!(kind, Kind::Document | Kind::Tree) => {
                self.func(any, Kind::Inside, 0)
            }
            Axis::DescendantOrSelf if matches!(kind, Kind::Document | Kind::Tree) => {
                self.func(any, Kind::Tree, 0)
            }
            Axis::Child => {
                let up = self.atom(any, Way::Parent, before, mask)?;
                self.inner(up)
            }
            Axis::Attribute => self.atom(any, Way::Parent, before, mask)?,
            Axis::Descendant | Axis::DescendantOrSelf => {
                let up = self.atom(any, Way::Ancestor, before, mask)?;
                let below = self.inner(up);
                match step.axis {
                    Axis::Descendant => below,
                    _ => self.both(any, before, below),
                }
            }
            Axis::Parent => {
                let children = self.downward(any, Kind::Children(before), mask);
                let attributes = self.downward(any, Kind::Attributes(before), mask);
                self.both(any, children, attributes)
            }
            Axis::Ancestor | Axis::AncestorOrSelf => {
                let all = self.everywhere(any, before, true);
                let mask_of_all = self.program.func(all).mask;
                let children = self.downward(any, Kind::Children(all), mask_of_all);
                let attributes = self.downward(any, Kind::Attributes(before), mask);
                let below = self.both(any, children, attributes);
                match step.axis {
                    Axis::Ancestor => below,
                    _ => self.both(any, before, below),
                }
            }
            Axis::FollowingSibling | Axis::PrecedingSibling => {
                let way = match step.axis {
                    Axis::FollowingSibling => Way::PrecedingSibling,
                    _ => Way::FollowingSibling,
                };
                let up = self.atom(any, way, before, mask)?;
                self.inner(up)
            }
            Axis::Following | Axis::Preceding => {
                let all = self.everywhere(any, before, true);
                let mask = self.program.func(all).mask;
                let way = match step.axis {
                    Axis::Following => Way::Preceding,
                    _ => Way::Following,
                };
                self.program.precedes = true;
                let up = self.atom(any, way, all, mask)?;
                self.inner(up)
            }
        };
        let plain = step.predicates.is_empty() && step.test == Test::Node;
        if plain && step.axis != Axis::Attribute {
            return Some(back);
        }
        self.pass(step, back)
    }

    fn inner(&mut self, func: FuncId) -> FuncId {
        let mask = self.program.func(func).mask;
        self.func(Op::Any, Kind::Inner(func), mask)
    }

    // -- functions and fields ------------------------------------------------------------------

    fn func(&mut self, op: Op, kind: Kind<'a>, mask: Env) -> FuncId {
        let id = self.program.funcs.len() as FuncId;
        let leaves = self.program.may_be_leaves(&kind);
        self.program.funcs.push(Func { op, kind, mask, below: 0, id, leaves });
        id
    }

    fn both(&mut self, op: Op, a: FuncId, b: FuncId) -> FuncId {
        let mask = self.program.func(a).mask | self.program.func(b).mask;
        self.func(op, Kind::Both(a, b), mask)
    }

    /// A function of what is directly below a node; `mask` is what it needs there.
    fn downward(&mut self, op: Op, kind: Kind<'a>, mask: Env) -> FuncId {
        let below = self.program.with_siblings(mask);
        let id = self.func(op, kind, self.program.above(mask));
        self.program.funcs[id as usize].below = below;
        id
    }

    fn subtree(&mut self, op: Op, each: FuncId) -> FuncId {
        let mask = self.lasting(self.program.func(each).mask);
        let below = self.program.with_siblings(mask);
        let id = self.func(op, Kind::Subtree(each), mask);
        self.program.funcs[id as usize].below = below;
        id
    }

    /// The fields that all levels below need.
    fn lasting(&self, mut mask: Env) -> Env {
        loop {
            let more = mask | self.program.above(mask);
            if more == mask {
                return mask;
            }
            mask = more;
        }
    }

    fn of_document(&mut self, func: FuncId) -> Option<FuncId> {
        let Func { op, mask, .. } = *self.program.func(func);
        self.atom(op, Way::Document, func, mask)
    }

    fn language(&mut self) -> Option<Env> {
        if self.program.language.is_none() {
            let leaf = self.func(Op::First, Kind::Leaf(Use::First, None), 0);
            self.atom(Op::First, Way::Language, leaf, 0)?;
            self.program.language = Some(self.program.atoms.len() - 1);
        }
        self.program.language.map(|atom| self.program.atoms[atom].bits)
    }

    /// A function that reads a new field, for which `mask` is needed where `of` is asked.
    fn atom(&mut self, op: Op, way: Way<'a>, of: FuncId, mask: Env) -> Option<FuncId> {
        let width = if op == Op::Any { 1 } else { WIDE };
        let shift = self.bits;
        self.bits += width;
        (self.bits <= Env::BITS).then_some(())?;
        let bits = ((1 << width) - 1) << shift;
        let (above, beside) = match way {
            Way::Document | Way::Language => (bits, 0),
            Way::Parent => (mask, 0),
            Way::Ancestor => (bits | mask, 0),
            Way::Following | Way::Preceding => (bits | self.program.above(mask), mask),
            Way::FollowingSibling | Way::PrecedingSibling | Way::Sibling(_) => {
                (self.program.above(mask), mask)
            }
            // The function is asked of the parent, the predicates of the children.
            Way::Listed(_) => (mask | self.program.above(mask), mask),
        };
        let beside = self.program.with_siblings(beside);
        self.program.atoms.push(Atom { op, way, of, shift, bits, above, beside });
        Some(self.func(op, Kind::Up(self.program.atoms.len() - 1), bits))
    }
}

/// The set whose first node an operator tests against a text that does not depend on anything.
pub fn first_test(expr: &BoolExpr) -> Option<(&NodeSet, ValueTest<'_>)> {
    match expr {
        BoolExpr::Texts(_, StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::Equals(text)))
        }
        BoolExpr::Contains(StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::Contains(text)))
        }
        BoolExpr::StartsWith(StrExpr::First(set), StrExpr::Const(text)) => {
            Some((set, ValueTest::StartsWith(text)))
        }
        _ => None,
    }
}

/// What decides whether any pair of two sets compares so.
pub fn compared(cmp: Cmp) -> (Use, Use) {
    match cmp {
        Cmp::Eq => (Use::Values, Use::Values),
        Cmp::Ne => (Use::Single, Use::Single),
        Cmp::Lt | Cmp::Le => (Use::Min, Use::Max),
        Cmp::Gt | Cmp::Ge => (Use::Max, Use::Min),
    }
}

/// Whether a set is one whose members are enumerated.
fn is_selection(set: &NodeSet) -> bool {
    match set {
        NodeSet::Filter(inner, predicate) => predicate.is_positional() || is_selection(inner),
        _ => false,
    }
}

/// Whether the last step of a set may lead to attributes.
fn may_be_attributes(set: &NodeSet) -> bool {
    match set {
        NodeSet::Path(start, steps) => match (steps.last(), start) {
            (Some(step), _) => matches!(
                step.axis,
                Axis::Attribute | Axis::SelfNode | Axis::DescendantOrSelf | Axis::AncestorOrSelf
            ),
            (None, Start::Set(inner)) => may_be_attributes(inner),
            (None, _) => false,
        },
        NodeSet::Union(a, b) => may_be_attributes(a) || may_be_attributes(b),
        NodeSet::Filter(inner, _) => may_be_attributes(inner),
    }
}

/// Whether steps meet every node once, and in document order where an operator asks for the first.
fn is_clean(op: Op, steps: &[Step], mut spread: Spread) -> bool {
    if op.is_idempotent() {
        return true;
    }
    for step in steps {
        use Spread::{Apart, Nested, One};
        spread = match (step.axis, spread) {
            (Axis::SelfNode, same) => same,
            (Axis::Parent, One) => One,
            (Axis::Child | Axis::Attribute, One | Apart) => Apart,
            (Axis::Attribute, Nested) => Apart,
            (Axis::Child, Nested) if op == Op::Add => Nested,
            (Axis::Descendant | Axis::DescendantOrSelf, One | Apart) => Nested,
            (Axis::FollowingSibling | Axis::PrecedingSibling, One) => Apart,
            (Axis::Ancestor | Axis::AncestorOrSelf | Axis::Following | Axis::Preceding, One) => {
                Nested
            }
            _ => return false,
        };
    }
    true
}
