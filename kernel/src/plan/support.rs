//! Which expressions are functions of the context node's subtree alone.
//!
//! A subtree that occurs many times is evaluated once, so nothing may depend on where it stands: no
//! axis that leads up or sideways, no absolute path, no `lang()`. What counts, adds up or takes the
//! first of a set must also meet every node once and in document order.

use crate::xpath::ir::{Axis, BoolExpr, NodeSet, Start, Step};
use crate::xpath::parts::{Part, Use};

/// Nested descents visit a node once for each way that leads to it; the interpreter visits it once.
const MAX_DESCENTS: usize = 2;

/// Whether an operator depends on the subtree only.
fn is_local(part: Part<'_>) -> bool {
    match part {
        Part::Bool(BoolExpr::Lang(_)) => false,
        Part::Set(set, used) => self::set(set, used),
        _ => part.all(is_local),
    }
}

fn is_local_bool(expr: &BoolExpr) -> bool {
    is_local(Part::Bool(expr))
}

fn set(set: &NodeSet, used: Use) -> bool {
    match set {
        NodeSet::Path(Start::Context, steps) => self::steps(steps, used),
        NodeSet::Path(Start::Root, _) => false,
        NodeSet::Path(Start::Set(set), steps) => {
            used == Use::Any && self::set(set, used) && self::steps(steps, used)
        }
        NodeSet::Union(a, b) => used == Use::Any && self::set(a, used) && self::set(b, used),
        NodeSet::Filter(set, predicate) => {
            !predicate.is_positional() && is_local_bool(predicate) && self::set(set, used)
        }
    }
}

/// Whether steps lead down only and meet nodes as their use demands.
pub fn steps(steps: &[Step], used: Use) -> bool {
    let deep = |step: &&Step| matches!(step.axis, Axis::Descendant | Axis::DescendantOrSelf);
    let down = steps
        .iter()
        .all(|step| step.axis.is_downward() && step.predicates.iter().all(is_local_bool));
    let descents = steps.iter().filter(deep).count();
    let once = descents <= 1;
    // Children of nested descendants come out of order; attributes do not.
    let after_deep = steps.iter().skip_while(|step| !deep(step)).skip(1);
    let ordered =
        after_deep.clone().all(|step| matches!(step.axis, Axis::Attribute | Axis::SelfNode));
    match used {
        Use::Any => down && descents <= MAX_DESCENTS,
        Use::Each => down && once,
        Use::InOrder => down && once && ordered,
    }
}

/// Whether predicates walk through what is below, anew for each element that contains it.
pub fn walks_deep(steps: &[Step]) -> bool {
    let is_deep = |step: &Step| step.predicates.iter().any(|it| is_deep(Part::Bool(it)));
    steps.iter().any(is_deep)
}

fn is_deep(part: Part<'_>) -> bool {
    match part {
        Part::Set(NodeSet::Path(_, steps), _) => steps.iter().any(|step| {
            matches!(step.axis, Axis::Descendant | Axis::DescendantOrSelf)
                || !step.predicates.is_empty()
        }),
        Part::Set(..) => true,
        _ => !part.all(|part| !is_deep(part)),
    }
}
