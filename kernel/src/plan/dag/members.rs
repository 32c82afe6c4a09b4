//! Sets as questions to every node of a document: whether it is a member. A path is followed
//! backwards, so that a node which it would meet twice or out of order is met once.

use super::compile::Compiler;
use super::program::{Chosen, Func, FuncId, Kind, Use, Way};
use super::values::Op;
use crate::xpath::ir::{Axis, BoolExpr, NodeSet, Start, Step, Test};

impl<'a> Compiler<'a> {
    /// What `then` gives for all nodes of a set of the document, each once and in document order.
    pub(super) fn members(&mut self, set: &'a NodeSet, then: FuncId) -> Option<FuncId> {
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

    pub(super) fn selected(
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
            | self.predicate(predicate)?
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
                let mask = self.predicate(predicate)? | self.program.func(member).mask;
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
