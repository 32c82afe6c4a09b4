//! Operators without nodes, which are worked out beforehand.

use std::borrow::Cow;

use super::Simplifier;
use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::xpath::ir::{BoolExpr, NameKind, NodeSet, NumExpr, StrExpr};
use crate::xpath::parts::Part;

/// Evaluates operators that have no sets.
struct Constants<'b>(&'b Budget);

impl Simplifier<'_> {
    pub(super) fn folded(&self, expr: BoolExpr) -> Evaluated<BoolExpr> {
        match is_constant(Part::Bool(&expr)) {
            true => Ok(BoolExpr::Const(Constants(self.budget).bool(&expr, Context::only(()))?)),
            false => Ok(expr),
        }
    }

    pub(super) fn folded_num(&self, expr: NumExpr) -> Evaluated<NumExpr> {
        match is_constant(Part::Num(&expr)) {
            true => Ok(NumExpr::Const(Constants(self.budget).num(&expr, Context::only(()))?)),
            false => Ok(expr),
        }
    }

    pub(super) fn folded_str(&self, expr: StrExpr) -> Evaluated<StrExpr> {
        match is_constant(Part::Str(&expr)) {
            true => {
                let value = Constants(self.budget).str(&expr, Context::only(()))?.into_owned();
                Ok(StrExpr::Const(value))
            }
            false => Ok(expr),
        }
    }
}

/// Whether an operator's operands are constants. They are simple already: none is looked at deeper.
fn is_constant(part: Part<'_>) -> bool {
    let is_const = |part| {
        matches!(
            part,
            Part::Bool(BoolExpr::Const(_))
                | Part::Num(NumExpr::Const(_))
                | Part::Str(StrExpr::Const(_))
        )
    };
    let is_context = matches!(
        part,
        Part::Num(NumExpr::Position | NumExpr::Last) | Part::Bool(BoolExpr::Lang(_))
    );
    !is_context && part.all(is_const)
}

/// There are no nodes, so whatever is asked of them is never asked.
impl<'a> Evaluator<'a> for Constants<'_> {
    type Node = ();

    fn budget(&self) -> &Budget {
        self.0
    }

    fn exists(&self, _: &'a NodeSet, _: Context<()>) -> Evaluated<bool> {
        Ok(false)
    }

    fn any(&self, _: &'a NodeSet, _: Context<()>, _: &dyn Fn(&str) -> bool) -> Evaluated<bool> {
        Ok(false)
    }

    fn count(&self, _: &'a NodeSet, _: Context<()>) -> Evaluated<usize> {
        Ok(0)
    }

    fn values(&self, _: &'a NodeSet, _: Context<()>) -> Evaluated<Vec<Cow<'a, str>>> {
        Ok(Vec::new())
    }

    fn first(&self, _: &'a NodeSet, _: Context<()>) -> Evaluated<Cow<'a, str>> {
        Ok(Cow::Borrowed(""))
    }

    fn name(&self, _: NameKind, _: &'a NodeSet, _: Context<()>) -> Evaluated<Cow<'a, str>> {
        Ok(Cow::Borrowed(""))
    }

    fn is_language(&self, (): (), _: &str) -> Evaluated<bool> {
        Ok(false)
    }
}
