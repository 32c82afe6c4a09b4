//! Sets to functions of a node: a path is followed from where it starts.

use super::compile::Compiler;
use super::numbered::Numbering;
use super::program::{Env, Func, FuncId, Kind, Way};
use super::values::Op;
use crate::xpath::ir::{Axis, BoolExpr, NodeSet, Start, Step, Test};

/// The nodes that the steps so far may lead to, from one node.
#[derive(Clone, Copy, PartialEq)]
enum Spread {
    One,
    /// Several, none of which contains another.
    Apart,
    Nested,
}

impl<'a> Compiler<'a> {
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
                match Numbering::is_short(predicate) {
                    true => self.numbered_set(inner, predicate, then),
                    false => None,
                }
                .or_else(|| self.selected(inner, predicate, then))
                .or_else(|| self.numbered_set(inner, predicate, then))
            }
            NodeSet::Filter(inner, predicate) => {
                let mask = self.predicate(predicate)? | self.program.func(then).mask;
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
                _ => self.numbered(step, then),
            };
        }
        let pass = self.pass(step, then)?;
        self.along(step.axis, pass)
    }

    /// A step with positions along an axis on which they are not counted among siblings.
    fn numbered(&mut self, step: &'a Step, then: FuncId) -> Option<FuncId> {
        let mask = self.predicates(step)?;
        let reverse = step.axis.is_reverse();
        let numbering = Numbering::new(Some(step), &step.predicates, reverse, then)?;
        self.listed_by(numbering, mask, |compiler, entry| compiler.along(step.axis, entry))
    }

    /// A set of the context node with a position.
    fn numbered_set(
        &mut self,
        inner: &'a NodeSet,
        predicate: &'a BoolExpr,
        then: FuncId,
    ) -> Option<FuncId> {
        let mask = self.predicate(predicate)?;
        let numbering = Numbering::new(None, std::slice::from_ref(predicate), false, then)?;
        self.listed_by(numbering, mask, |compiler, entry| compiler.set(inner, entry))
    }

    fn listed_by(
        &mut self,
        numbering: Numbering<'a>,
        mask: Env,
        list: impl FnOnce(&mut Self, FuncId) -> Option<FuncId>,
    ) -> Option<FuncId> {
        let Func { op, mask: then_mask, .. } = *self.program.func(numbering.then);
        let number = self.program.numberings.len();
        self.program.numberings.push(numbering);
        let entry = self.func(numbering.op(), Kind::Entry(number), mask | then_mask);
        let list = list(self, entry)?;
        self.program.numberings[number].list = list;
        let mask = self.program.func(list).mask;
        Some(self.func(op, Kind::Numbered(number), mask))
    }

    /// What a function gives for all nodes of an axis.
    fn along(&mut self, axis: Axis, pass: FuncId) -> Option<FuncId> {
        let Func { op, mask: pass_mask, .. } = *self.program.func(pass);
        match axis {
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
                if axis == Axis::Following {
                    return self.atom(op, Way::Following, all, mask);
                }
                self.program.precedes = true;
                self.atom(op, Way::Preceding, all, mask)
            }
        }
    }

    pub(super) fn pass(&mut self, step: &'a Step, then: FuncId) -> Option<FuncId> {
        let Func { op, mask, .. } = *self.program.func(then);
        let mask = mask | self.predicates(step)?;
        Some(self.func(op, Kind::Pass(step, then), mask))
    }

    pub(super) fn predicates(&mut self, step: &'a Step) -> Option<Env> {
        step.predicates
            .iter()
            .try_fold(0, |mask, predicate| Some(mask | self.predicate(predicate)?))
    }
}

/// Whether a set is one whose members are enumerated.
fn is_selection(set: &NodeSet) -> bool {
    match set {
        NodeSet::Filter(inner, predicate) => predicate.is_positional() || is_selection(inner),
        _ => false,
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
