//! Which expressions are functions of the context node's subtree alone.
//!
//! A subtree that occurs many times is evaluated once, so nothing may depend on where it stands: no
//! axis that leads up or sideways, no absolute path, no `lang()`. What counts, adds up or takes the
//! first of a set must also meet every node once and in document order.

use crate::xpath::ir::{Axis, BoolExpr, NodeSet, NumExpr, Positional, Start, Step, StrExpr};

/// What is done with the nodes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Looked for: order and repetition do not matter.
    Any,
    /// Counted: repetition matters.
    Each,
    /// Added up or the first taken: repetition and order matter.
    InOrder,
}

/// Nested descents visit a node once for each way that leads to it; the interpreter visits it once.
const MAX_DESCENTS: usize = 2;

/// Whether a boolean depends on the subtree only.
pub fn bool(expr: &BoolExpr) -> bool {
    match expr {
        BoolExpr::Const(_) => true,
        BoolExpr::Lang(_) => false,
        BoolExpr::And(a, b) | BoolExpr::Or(a, b) => bool(a) && bool(b),
        BoolExpr::Not(a) => bool(a),
        BoolExpr::Exists(set) => self::set(set, Use::Any),
        BoolExpr::Number(a) => num(a),
        BoolExpr::Text(a) => str(a),
        BoolExpr::Numbers(_, a, b) => num(a) && num(b),
        BoolExpr::Texts(_, a, b) | BoolExpr::Contains(a, b) | BoolExpr::StartsWith(a, b) => {
            str(a) && str(b)
        }
        BoolExpr::SetNumber(_, set, b) => self::set(set, Use::Any) && num(b),
        BoolExpr::SetText(_, set, b) => self::set(set, Use::Any) && str(b),
        BoolExpr::Sets(_, a, b) => set(a, Use::Any) && set(b, Use::Any),
    }
}

/// Whether a number depends on the subtree only.
pub fn num(expr: &NumExpr) -> bool {
    match expr {
        NumExpr::Const(_) | NumExpr::Position | NumExpr::Last => true,
        NumExpr::Arith(_, a, b) => num(a) && num(b),
        NumExpr::Neg(a) | NumExpr::Round(_, a) => num(a),
        NumExpr::Count(set) => self::set(set, Use::Each),
        NumExpr::Sum(set) => self::set(set, Use::InOrder),
        NumExpr::Text(a) | NumExpr::Length(a) => str(a),
        NumExpr::Bool(a) => bool(a),
    }
}

/// Whether a string depends on the subtree only.
pub fn str(expr: &StrExpr) -> bool {
    match expr {
        StrExpr::Const(_) => true,
        StrExpr::First(set) | StrExpr::Name(_, set) => self::set(set, Use::InOrder),
        StrExpr::Number(a) => num(a),
        StrExpr::Bool(a) => bool(a),
        StrExpr::Concat(parts) => parts.iter().all(str),
        StrExpr::Before(a, b) | StrExpr::After(a, b) => str(a) && str(b),
        StrExpr::Substring(a, from, length) => {
            str(a) && num(from) && length.as_ref().is_none_or(|length| num(length))
        }
        StrExpr::Normalize(a) => str(a),
        StrExpr::Translate(a, b, c) => str(a) && str(b) && str(c),
    }
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
            !predicate.is_positional() && bool(predicate) && self::set(set, used)
        }
    }
}

/// Whether steps lead down only and meet nodes as their use demands.
pub fn steps(steps: &[Step], used: Use) -> bool {
    let deep = |step: &&Step| matches!(step.axis, Axis::Descendant | Axis::DescendantOrSelf);
    let down = steps.iter().all(|step| step.axis.is_downward() && step.predicates.iter().all(bool));
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
