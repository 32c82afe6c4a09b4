//! Which engine answers which part of an expression.

use crate::xpath::Expression;
use crate::xpath::ir::{BoolExpr, NodeSet, NumExpr, StrExpr};

use super::anchors::{constant, split};
use super::support::{self, Use};

/// Names the plan: `columns` when postings answer every part, `interpreter` when a document at a
/// time does, and `columns + interpreter` with the count of each otherwise.
pub fn explain(expression: &Expression) -> String {
    let mut parts = Parts::default();
    parts.bool(expression.root());
    match (parts.postings + parts.walks, parts.interpreted) {
        (0, 0) => "columns: constant".into(),
        (_, 0) => format!("columns: {} by postings, {} by walking", parts.postings, parts.walks),
        (0, several) => format!("interpreter: {several}"),
        (_, several) => format!(
            "columns: {} by postings, {} by walking; interpreter: {several}",
            parts.postings, parts.walks
        ),
    }
}

#[derive(Default)]
struct Parts {
    postings: usize,
    walks: usize,
    interpreted: usize,
}

impl Parts {
    fn set(&mut self, set: &NodeSet, used: Use) {
        match set {
            NodeSet::Union(a, b) => {
                self.set(a, used);
                self.set(b, used);
            }
            NodeSet::Path(_, steps) if support::steps(steps, used) => match split(steps) {
                Some(_) => self.postings += 1,
                None => self.walks += 1,
            },
            _ => self.interpreted += 1,
        }
    }

    fn bool(&mut self, expr: &BoolExpr) {
        match expr {
            BoolExpr::Const(_) => {}
            BoolExpr::And(a, b) | BoolExpr::Or(a, b) => {
                self.bool(a);
                self.bool(b);
            }
            BoolExpr::Not(a) => self.bool(a),
            BoolExpr::Number(a) => self.num(a),
            BoolExpr::Text(a) => self.str(a),
            BoolExpr::Numbers(_, a, b) => {
                self.num(a);
                self.num(b);
            }
            BoolExpr::Texts(_, a, b) | BoolExpr::Contains(a, b) | BoolExpr::StartsWith(a, b) => {
                self.str(a);
                self.str(b);
            }
            BoolExpr::Exists(set) | BoolExpr::SetText(_, set, StrExpr::Const(_)) => {
                self.set(set, Use::Any);
            }
            BoolExpr::SetNumber(_, set, b) if constant(b).is_some() => self.set(set, Use::Any),
            BoolExpr::SetText(..)
            | BoolExpr::SetNumber(..)
            | BoolExpr::Sets(..)
            | BoolExpr::Lang(_) => {
                self.interpreted += 1;
            }
        }
    }

    fn num(&mut self, expr: &NumExpr) {
        match expr {
            NumExpr::Const(_) => {}
            NumExpr::Arith(_, a, b) => {
                self.num(a);
                self.num(b);
            }
            NumExpr::Neg(a) | NumExpr::Round(_, a) => self.num(a),
            NumExpr::Text(a) | NumExpr::Length(a) => self.str(a),
            NumExpr::Bool(a) => self.bool(a),
            // A sum of fractions goes to the interpreter after all.
            NumExpr::Count(set) | NumExpr::Sum(set) => self.set(set, Use::Each),
            NumExpr::Position | NumExpr::Last => self.interpreted += 1,
        }
    }

    fn str(&mut self, expr: &StrExpr) {
        match expr {
            StrExpr::Const(_) => {}
            StrExpr::Number(a) => self.num(a),
            // Nested hits send it to the interpreter after all; nobody's hardware nests so.
            StrExpr::First(set) => self.set(set, Use::Each),
            _ => self.interpreted += 1,
        }
    }
}
