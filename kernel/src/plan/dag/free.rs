//! Which operators mean the same wherever they stand in a document: all their paths are absolute.
//!
//! A predicate that is one is worked out once for a document. What nodes see of it is one bit, not what it
//! was worked out from, which hardly two documents have in common.

use crate::xpath::ir::{BoolExpr, NodeSet, NumExpr, Start};
use crate::xpath::parts::Part;

pub fn is_free(part: Part<'_>) -> bool {
    match part {
        Part::Bool(BoolExpr::Lang(_)) | Part::Num(NumExpr::Position | NumExpr::Last) => false,
        Part::Set(set, _) => self::set(set),
        _ => part.all(is_free),
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
