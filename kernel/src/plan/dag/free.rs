//! Which operators mean the same wherever they stand in a document: all their paths are absolute.
//!
//! A predicate that is one is worked out once for a document. What nodes see of it is one bit, not what it
//! was worked out from, which hardly two documents have in common.

use crate::xpath::ir::{BoolExpr, NodeSet, NumExpr, Start, StrExpr};

pub fn bool(expr: &BoolExpr) -> bool {
    match expr {
        BoolExpr::Const(_) => true,
        BoolExpr::Lang(_) => false,
        BoolExpr::And(a, b) | BoolExpr::Or(a, b) => bool(a) && bool(b),
        BoolExpr::Not(a) => bool(a),
        BoolExpr::Exists(set) => self::set(set),
        BoolExpr::Number(a) => num(a),
        BoolExpr::Text(a) => str(a),
        BoolExpr::Numbers(_, a, b) => num(a) && num(b),
        BoolExpr::Texts(_, a, b) | BoolExpr::Contains(a, b) | BoolExpr::StartsWith(a, b) => {
            str(a) && str(b)
        }
        BoolExpr::SetNumber(_, set, b) => self::set(set) && num(b),
        BoolExpr::SetText(_, set, b) => self::set(set) && str(b),
        BoolExpr::Sets(_, a, b) => set(a) && set(b),
    }
}

fn num(expr: &NumExpr) -> bool {
    match expr {
        NumExpr::Const(_) => true,
        NumExpr::Position | NumExpr::Last => false,
        NumExpr::Arith(_, a, b) => num(a) && num(b),
        NumExpr::Neg(a) | NumExpr::Round(_, a) => num(a),
        NumExpr::Count(set) | NumExpr::Sum(set) => self::set(set),
        NumExpr::Text(a) | NumExpr::Length(a) => str(a),
        NumExpr::Bool(a) => bool(a),
    }
}

fn str(expr: &StrExpr) -> bool {
    match expr {
        StrExpr::Const(_) => true,
        StrExpr::First(set) | StrExpr::Name(_, set) => self::set(set),
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

/// Predicates have contexts of their own.
fn set(set: &NodeSet) -> bool {
    match set {
        NodeSet::Path(Start::Root, _) => true,
        NodeSet::Path(Start::Context, _) => false,
        NodeSet::Path(Start::Set(inner), _) | NodeSet::Filter(inner, _) => self::set(inner),
        NodeSet::Union(a, b) => self::set(a) && self::set(b),
    }
}
