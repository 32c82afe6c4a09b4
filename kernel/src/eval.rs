//! What the operators mean, whatever the nodes are.

use std::borrow::Cow;

use crate::budget::Budget;
use crate::error::BudgetExceeded;
use crate::image::{NameId, Store};
use crate::xpath::ir::{BoolExpr, Cmp, NameKind, NodeSet, NumExpr, StrExpr};
use crate::xpath::{number, text};

/// A result, unless the budget ran out first.
pub type Evaluated<T> = Result<T, BudgetExceeded>;

/// The context of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Context<N> {
    /// The context node.
    pub node: N,
    /// Its position, from 1.
    pub position: usize,
    /// The size of its context.
    pub size: usize,
}

impl<N> Context<N> {
    /// The only node of its context.
    pub fn only(node: N) -> Self {
        Context { node, position: 1, size: 1 }
    }
}

/// Evaluates expressions, given what to do with node-sets. `'a` is the life of expressions and values.
pub trait Evaluator<'a> {
    /// A node.
    type Node: Copy;

    /// The steps that are left.
    fn budget(&self) -> &Budget;
    /// Whether the set has a node.
    fn exists(&self, set: &'a NodeSet, at: Context<Self::Node>) -> Evaluated<bool>;
    /// Whether any node's string-value passes.
    fn any(
        &self,
        set: &'a NodeSet,
        at: Context<Self::Node>,
        test: &dyn Fn(&str) -> bool,
    ) -> Evaluated<bool>;
    /// How many nodes the set has.
    fn count(&self, set: &'a NodeSet, at: Context<Self::Node>) -> Evaluated<usize>;
    /// The string-values of all nodes in document order.
    fn values(&self, set: &'a NodeSet, at: Context<Self::Node>) -> Evaluated<Vec<Cow<'a, str>>>;
    /// The string-value of the first node in document order, or nothing.
    fn first(&self, set: &'a NodeSet, at: Context<Self::Node>) -> Evaluated<Cow<'a, str>>;
    /// A name of the first node in document order, or nothing.
    fn name(
        &self,
        kind: NameKind,
        set: &'a NodeSet,
        at: Context<Self::Node>,
    ) -> Evaluated<Cow<'a, str>>;
    /// `lang()`.
    fn is_language(&self, node: Self::Node, wanted: &str) -> Evaluated<bool>;

    /// What the numbers of all nodes add up to, in document order.
    fn sum(&self, set: &'a NodeSet, at: Context<Self::Node>) -> Evaluated<f64> {
        let values = self.values(set, at)?;
        Ok(values.iter().fold(0.0, |sum, value| sum + number::parse(value)))
    }
    /// Whether any pair of nodes of two sets compares so.
    fn sets(
        &self,
        cmp: Cmp,
        a: &'a NodeSet,
        b: &'a NodeSet,
        at: Context<Self::Node>,
    ) -> Evaluated<bool> {
        let (a, b) = (self.values(a, at)?, self.values(b, at)?);
        self.budget().spend(a.len() + b.len())?;
        Ok(compare_values(cmp, a, b))
    }
    /// The value of a boolean that the evaluator has a quicker way for.
    fn known(&self, _: &'a BoolExpr, _: Context<Self::Node>) -> Evaluated<Option<bool>> {
        Ok(None)
    }

    /// The value of a number that the evaluator has a quicker way for.
    fn known_num(&self, _: &'a NumExpr, _: Context<Self::Node>) -> Evaluated<Option<f64>> {
        Ok(None)
    }

    /// Evaluates to a boolean.
    fn bool(&self, expr: &'a BoolExpr, at: Context<Self::Node>) -> Evaluated<bool> {
        // A predicate may be a thousand operators long.
        self.budget().spend(1)?;
        if let Some(known) = self.known(expr, at)? {
            return Ok(known);
        }
        Ok(match expr {
            BoolExpr::Const(value) => *value,
            BoolExpr::And(a, b) => self.bool(a, at)? && self.bool(b, at)?,
            BoolExpr::Or(a, b) => self.bool(a, at)? || self.bool(b, at)?,
            BoolExpr::Not(a) => !self.bool(a, at)?,
            BoolExpr::Exists(set) => self.exists(set, at)?,
            BoolExpr::Number(a) => number::truth(self.num(a, at)?),
            BoolExpr::Text(a) => !self.str(a, at)?.is_empty(),
            BoolExpr::Numbers(cmp, a, b) => cmp.numbers(self.num(a, at)?, self.num(b, at)?),
            BoolExpr::Texts(unequal, a, b) => (self.str(a, at)? == self.str(b, at)?) != *unequal,
            BoolExpr::SetNumber(cmp, set, b) => {
                let number = self.num(b, at)?;
                self.any(set, at, &|value| cmp.numbers(number::parse(value), number))?
            }
            BoolExpr::SetText(unequal, set, b) => {
                let wanted = self.str(b, at)?;
                self.any(set, at, &|value| (value == wanted) != *unequal)?
            }
            BoolExpr::Sets(cmp, a, b) => self.sets(*cmp, a, b, at)?,
            BoolExpr::Contains(a, b) => text::contains(&self.str(a, at)?, &self.str(b, at)?),
            BoolExpr::StartsWith(a, b) => self.str(a, at)?.starts_with(&*self.str(b, at)?),
            BoolExpr::Lang(a) => self.is_language(at.node, &self.str(a, at)?)?,
        })
    }

    /// Evaluates to a number.
    fn num(&self, expr: &'a NumExpr, at: Context<Self::Node>) -> Evaluated<f64> {
        self.budget().spend(1)?;
        if let Some(known) = self.known_num(expr, at)? {
            return Ok(known);
        }
        Ok(match expr {
            NumExpr::Const(value) => *value,
            NumExpr::Position => at.position as f64,
            NumExpr::Last => at.size as f64,
            NumExpr::Arith(arith, a, b) => arith.apply(self.num(a, at)?, self.num(b, at)?),
            NumExpr::Neg(a) => -self.num(a, at)?,
            NumExpr::Count(set) => self.count(set, at)? as f64,
            NumExpr::Sum(set) => self.sum(set, at)?,
            NumExpr::Text(a) => number::parse(&self.str(a, at)?),
            NumExpr::Bool(a) => f64::from(u8::from(self.bool(a, at)?)),
            NumExpr::Length(a) => self.str(a, at)?.chars().count() as f64,
            NumExpr::Round(rounding, a) => number::round(*rounding, self.num(a, at)?),
        })
    }

    /// Evaluates to a string.
    fn str(&self, expr: &'a StrExpr, at: Context<Self::Node>) -> Evaluated<Cow<'a, str>> {
        let value = match expr {
            StrExpr::Const(value) => Cow::Borrowed(value.as_str()),
            StrExpr::First(set) => self.first(set, at)?,
            StrExpr::Number(a) => Cow::Owned(number::format(self.num(a, at)?)),
            StrExpr::Bool(a) => Cow::Borrowed(if self.bool(a, at)? { "true" } else { "false" }),
            StrExpr::Concat(parts) => {
                let mut joined = Cow::Borrowed("");
                for part in parts {
                    joined = text::join(joined, self.str(part, at)?);
                }
                joined
            }
            StrExpr::Before(a, b) => {
                let mark = self.str(b, at)?;
                map(self.str(a, at)?, |value| text::before(value, &mark))
            }
            StrExpr::After(a, b) => {
                let mark = self.str(b, at)?;
                map(self.str(a, at)?, |value| text::after(value, &mark))
            }
            StrExpr::Substring(a, from, length) => {
                let from = self.num(from, at)?;
                let length = length.as_ref().map(|length| self.num(length, at)).transpose()?;
                map(self.str(a, at)?, |value| text::substring(value, from, length))
            }
            StrExpr::Normalize(a) => Cow::Owned(text::normalize(&self.str(a, at)?)),
            StrExpr::Translate(a, from, to) => {
                let (value, from, to) = (self.str(a, at)?, self.str(from, at)?, self.str(to, at)?);
                self.budget().spend(value.len() * (1 + from.len() / 4) / 16)?;
                Cow::Owned(text::translate(&value, &from, &to))
            }
            StrExpr::Name(kind, set) => self.name(*kind, set, at)?,
        };
        self.budget().read(&value)?;
        Ok(value)
    }
}

/// Whether any pair of values compares so.
fn compare_values(cmp: Cmp, mut a: Vec<Cow<'_, str>>, mut b: Vec<Cow<'_, str>>) -> bool {
    if a.is_empty() || b.is_empty() {
        return false;
    }
    if cmp.is_equality() {
        a.sort_unstable();
        a.dedup();
        b.sort_unstable();
        b.dedup();
        return match cmp {
            Cmp::Eq => a.iter().any(|value| b.binary_search(value).is_ok()),
            // Unequal unless both sides are one and the same value.
            _ => a.len() > 1 || b.len() > 1 || a != b,
        };
    }
    // NaN compares false with everything; the extremes decide for the rest.
    let extremes = |values: &[Cow<'_, str>]| {
        let numbers = values.iter().map(|value| number::parse(value)).filter(|n| !n.is_nan());
        numbers.fold(None, |extremes: Option<(f64, f64)>, number| {
            let (low, high) = extremes.unwrap_or((number, number));
            Some((low.min(number), high.max(number)))
        })
    };
    match (extremes(&a), extremes(&b)) {
        (Some((low_a, high_a)), Some((low_b, high_b))) => match cmp {
            Cmp::Lt | Cmp::Le => cmp.numbers(low_a, high_b),
            _ => cmp.numbers(high_a, low_b),
        },
        _ => false,
    }
}

/// What `local-name()`, `name()` and `namespace-uri()` say of a name.
pub fn name_text(store: &Store, kind: NameKind, name: NameId) -> Cow<'_, str> {
    let name = store.names()[name as usize];
    let strings = store.strings();
    match kind {
        NameKind::Local => Cow::Borrowed(strings.get(name.local)),
        NameKind::Uri => Cow::Borrowed(strings.get(name.uri)),
        NameKind::Qualified if name.prefix == 0 => Cow::Borrowed(strings.get(name.local)),
        NameKind::Qualified => {
            Cow::Owned(format!("{}:{}", strings.get(name.prefix), strings.get(name.local)))
        }
    }
}

/// Takes a part of a string without copying a borrowed one.
fn map<'a>(value: Cow<'a, str>, part: impl Fn(&str) -> &str) -> Cow<'a, str> {
    match value {
        Cow::Borrowed(value) => {
            let chosen = part(value);
            let start = (chosen.as_ptr() as usize).wrapping_sub(value.as_ptr() as usize);
            // An empty part may be a constant from elsewhere.
            if chosen.is_empty() {
                Cow::Borrowed("")
            } else {
                Cow::Borrowed(&value[start..start + chosen.len()])
            }
        }
        Cow::Owned(value) => Cow::Owned(part(&value).to_owned()),
    }
}
