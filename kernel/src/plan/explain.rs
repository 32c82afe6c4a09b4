//! Which engine answers which part of an expression.

use crate::xpath::Expression;
use crate::xpath::ir::{BoolExpr, NodeSet, NumExpr, StrExpr};
use crate::xpath::parts::Use;

use super::anchors::{constant, split};
use super::columns::{DocumentPath, document_paths};
use super::dag;

/// Names the plan: how many parts are answered by postings, by distinct subtrees, and by the
/// interpreter, a document at a time. Postings that would cost more than distinct subtrees, and sums
/// that depend on the order of their addition, are answered by what comes next.
pub fn explain(expression: &Expression) -> String {
    let mut parts = Parts::default();
    parts.bool(expression.root());
    let counted = [
        (parts.postings, "columns", "by postings"),
        (parts.subtrees, "subtrees", ""),
        (parts.interpreted, "interpreter", ""),
    ];
    let described: Vec<String> = counted
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, engine, how)| format!("{engine}: {count} {how}").trim_end().to_owned())
        .collect();
    if described.is_empty() { "columns: constant".into() } else { described.join("; ") }
}

#[derive(Default)]
struct Parts {
    postings: usize,
    subtrees: usize,
    interpreted: usize,
}

impl Parts {
    fn set(&mut self, set: &NodeSet, used: Use, whole: impl FnOnce() -> bool) {
        let is_posted = |set: &DocumentPath<'_>| set.absolute && split(set.steps).is_some();
        match document_paths(set, used) {
            Some(paths) if paths.iter().all(is_posted) => self.postings += 1,
            _ => self.whole(whole()),
        }
    }

    fn whole(&mut self, by_subtrees: bool) {
        match by_subtrees {
            true => self.subtrees += 1,
            false => self.interpreted += 1,
        }
    }

    fn bool(&mut self, expr: &BoolExpr) {
        let whole = || dag::answers_bool(expr);
        match expr {
            BoolExpr::Const(_) => {}
            BoolExpr::And(a, b) | BoolExpr::Or(a, b) => {
                self.bool(a);
                self.bool(b);
            }
            BoolExpr::Not(a) => self.bool(a),
            BoolExpr::Number(a) => self.num(a),
            BoolExpr::Numbers(_, a, b) => {
                self.num(a);
                self.num(b);
            }
            BoolExpr::Texts(..) | BoolExpr::Contains(..) | BoolExpr::StartsWith(..) => {
                match dag::first_test(expr) {
                    Some((set, _)) => self.set(set, Use::Each, whole),
                    None => self.whole(whole()),
                }
            }
            BoolExpr::Exists(set) | BoolExpr::SetText(_, set, StrExpr::Const(_)) => {
                self.set(set, Use::Any, whole);
            }
            BoolExpr::SetNumber(_, set, b) if constant(b).is_some() => {
                self.set(set, Use::Any, whole);
            }
            BoolExpr::Text(_)
            | BoolExpr::SetText(..)
            | BoolExpr::SetNumber(..)
            | BoolExpr::Sets(..)
            | BoolExpr::Lang(_) => self.whole(whole()),
        }
    }

    fn num(&mut self, expr: &NumExpr) {
        let whole = || dag::answers_num(expr);
        match expr {
            NumExpr::Const(_) => {}
            NumExpr::Arith(_, a, b) => {
                self.num(a);
                self.num(b);
            }
            NumExpr::Neg(a) | NumExpr::Round(_, a) => self.num(a),
            NumExpr::Bool(a) => self.bool(a),
            NumExpr::Count(set) | NumExpr::Sum(set) => self.set(set, Use::Each, whole),
            NumExpr::Text(a) | NumExpr::Length(a) => match &**a {
                StrExpr::First(set) => self.set(set, Use::Each, whole),
                _ => self.whole(whole()),
            },
            NumExpr::Position | NumExpr::Last => self.whole(whole()),
        }
    }
}
