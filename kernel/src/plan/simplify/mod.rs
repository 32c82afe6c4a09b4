//! Expressions without what the documents of an image decide beforehand.
//!
//! Much of what can be written leads nowhere: an attribute has no children, and no `serial` of this fleet
//! has a `node`. The outline of an image ([`Outline`]) says so for every document at once. What is
//! left is an expression that means the same on all of them.

mod folding;
mod sets;

use std::cell::Cell;

use crate::budget::Budget;
use crate::eval::Evaluated;
use crate::image::{Classes, DOCUMENT, Outline, Store};
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{BoolExpr, Cmp, NameKind, NodeSet, NumExpr, StrExpr};

/// So often a predicate is looked at for one class of nodes alone.
const MAX_LOOKS: usize = 1_024;

/// Simplifies expressions for one image.
pub struct Simplifier<'s> {
    store: &'s Store,
    outline: &'s Outline,
    names: &'s [BoundName],
    budget: &'s Budget,
    looks: Cell<usize>,
}

/// What is known of a context.
#[derive(Clone)]
struct Here {
    /// What the context node may be.
    classes: Classes,
    /// Whether it is the only node of its context.
    is_only: bool,
}

/// The expression that means the same on every document of an image.
pub fn simplified(
    expr: &BoolExpr,
    store: &Store,
    outline: &Outline,
    names: &[BoundName],
    budget: &Budget,
) -> Evaluated<BoolExpr> {
    budget.spend(store.names().len())?;
    let looks = Cell::new(MAX_LOOKS);
    let one = Simplifier { store, outline, names, budget, looks };
    let mut classes = outline.roots();
    classes.insert(DOCUMENT as usize);
    one.bool(expr, &Here { classes, is_only: false })
}

impl Simplifier<'_> {
    fn bool(&self, expr: &BoolExpr, here: &Here) -> Evaluated<BoolExpr> {
        self.budget.spend(1)?;
        Ok(match expr {
            BoolExpr::Const(_) => expr.clone(),
            BoolExpr::And(a, b) => self.both(a, b, here, false)?,
            BoolExpr::Or(a, b) => self.both(a, b, here, true)?,
            BoolExpr::Not(a) => match self.bool(a, here)? {
                BoolExpr::Const(value) => BoolExpr::Const(!value),
                a => BoolExpr::Not(Box::new(a)),
            },
            BoolExpr::Exists(set) => match self.set(set, here)? {
                None => BoolExpr::Const(false),
                Some((set, _)) if self.is_certain(&set, here) => BoolExpr::Const(true),
                Some((set, _)) => BoolExpr::Exists(set),
            },
            BoolExpr::Number(a) => self.folded(BoolExpr::Number(self.num(a, here)?))?,
            BoolExpr::Text(a) => self.folded(BoolExpr::Text(self.str(a, here)?))?,
            BoolExpr::Numbers(cmp, a, b) => {
                self.numbers(*cmp, self.num(a, here)?, self.num(b, here)?)?
            }
            BoolExpr::Texts(unequal, a, b) => {
                let (a, b) = (self.str(a, here)?, self.str(b, here)?);
                match has_more(&a, &b) || has_more(&b, &a) {
                    true => BoolExpr::Const(*unequal),
                    false => self.folded(BoolExpr::Texts(*unequal, a, b))?,
                }
            }
            BoolExpr::Contains(a, b) => match (self.str(a, here)?, self.str(b, here)?) {
                (_, StrExpr::Const(part)) if part.is_empty() => BoolExpr::Const(true),
                (a, b) => self.folded(BoolExpr::Contains(a, b))?,
            },
            BoolExpr::StartsWith(a, b) => match (self.str(a, here)?, self.str(b, here)?) {
                (_, StrExpr::Const(part)) if part.is_empty() => BoolExpr::Const(true),
                (a, b) => self.folded(BoolExpr::StartsWith(a, b))?,
            },
            BoolExpr::SetNumber(cmp, set, b) => {
                let Some((set, _)) = self.set(set, here)? else {
                    return Ok(BoolExpr::Const(false));
                };
                match self.num(b, here)? {
                    NumExpr::Const(value) if value.is_nan() => match cmp {
                        Cmp::Ne => BoolExpr::Exists(set),
                        _ => BoolExpr::Const(false),
                    },
                    b => BoolExpr::SetNumber(*cmp, set, b),
                }
            }
            BoolExpr::SetText(unequal, set, b) => {
                let Some((set, classes)) = self.set(set, here)? else {
                    return Ok(BoolExpr::Const(false));
                };
                match self.str(b, here)? {
                    StrExpr::Const(text) if self.is_nowhere(&text, &classes)? => match unequal {
                        true => BoolExpr::Exists(set),
                        false => BoolExpr::Const(false),
                    },
                    b => BoolExpr::SetText(*unequal, set, b),
                }
            }
            BoolExpr::Sets(cmp, a, b) => match (self.set(a, here)?, self.set(b, here)?) {
                // Every node of one is in the other, and equal to itself.
                (Some((a, of_a)), Some((b, _))) if *cmp == Cmp::Eq && self.has_all(&b, &of_a) => {
                    BoolExpr::Exists(a)
                }
                (Some((a, _)), Some((b, of_b))) if *cmp == Cmp::Eq && self.has_all(&a, &of_b) => {
                    BoolExpr::Exists(b)
                }
                (Some((a, _)), Some((b, _))) => BoolExpr::Sets(*cmp, a, b),
                _ => BoolExpr::Const(false),
            },
            BoolExpr::Lang(_) if !self.has_languages()? => BoolExpr::Const(false),
            BoolExpr::Lang(a) => BoolExpr::Lang(self.str(a, here)?),
        })
    }

    fn has_languages(&self) -> Evaluated<bool> {
        self.budget.spend(self.store.names().len())?;
        Ok((0..self.store.names().len() as u32).any(|name| self.store.is_language(name)))
    }

    /// `or` where `decided` is true, `and` where it is false: what one operand decides.
    fn both(&self, a: &BoolExpr, b: &BoolExpr, here: &Here, decided: bool) -> Evaluated<BoolExpr> {
        let a = self.bool(a, here)?;
        if let BoolExpr::Const(value) = a {
            return if value == decided { Ok(a) } else { self.bool(b, here) };
        }
        Ok(match self.bool(b, here)? {
            BoolExpr::Const(value) if value == decided => BoolExpr::Const(value),
            BoolExpr::Const(_) => a,
            b if decided => BoolExpr::Or(Box::new(a), Box::new(b)),
            b => BoolExpr::And(Box::new(a), Box::new(b)),
        })
    }

    fn numbers(&self, cmp: Cmp, a: NumExpr, b: NumExpr) -> Evaluated<BoolExpr> {
        let is_nan = |expr: &NumExpr| matches!(expr, NumExpr::Const(value) if value.is_nan());
        if is_nan(&a) || is_nan(&b) {
            return Ok(BoolExpr::Const(cmp == Cmp::Ne));
        }
        let decided = match (&a, &b) {
            (a, NumExpr::Const(limit)) => against_amount(least(a), cmp, *limit),
            (NumExpr::Const(limit), b) => against_amount(least(b), cmp.flipped(), *limit),
            _ => None,
        };
        match decided {
            Some(value) => Ok(BoolExpr::Const(value)),
            None => self.folded(BoolExpr::Numbers(cmp, a, b)),
        }
    }

    fn num(&self, expr: &NumExpr, here: &Here) -> Evaluated<NumExpr> {
        self.budget.spend(1)?;
        let simple = match expr {
            NumExpr::Const(_) => return Ok(expr.clone()),
            NumExpr::Position | NumExpr::Last if here.is_only => NumExpr::Const(1.0),
            NumExpr::Position | NumExpr::Last => return Ok(expr.clone()),
            NumExpr::Arith(arith, a, b) => {
                let (a, b) = (self.num(a, here)?, self.num(b, here)?);
                NumExpr::Arith(*arith, Box::new(a), Box::new(b))
            }
            NumExpr::Neg(a) => NumExpr::Neg(Box::new(self.num(a, here)?)),
            NumExpr::Round(rounding, a) => NumExpr::Round(*rounding, Box::new(self.num(a, here)?)),
            NumExpr::Count(set) => match self.set(set, here)? {
                Some((set, _)) => NumExpr::Count(set),
                None => NumExpr::Const(0.0),
            },
            NumExpr::Sum(set) => match self.set(set, here)? {
                Some((set, _)) => NumExpr::Sum(set),
                None => NumExpr::Const(0.0),
            },
            NumExpr::Text(a) => NumExpr::Text(Box::new(self.str(a, here)?)),
            NumExpr::Length(a) => NumExpr::Length(Box::new(self.str(a, here)?)),
            NumExpr::Bool(a) => NumExpr::Bool(Box::new(self.bool(a, here)?)),
        };
        self.folded_num(simple)
    }

    fn str(&self, expr: &StrExpr, here: &Here) -> Evaluated<StrExpr> {
        self.budget.spend(1)?;
        let text = |expr| Ok(Box::new(self.str(expr, here)?));
        let nothing = || StrExpr::Const(String::new());
        let simple = match expr {
            StrExpr::Const(_) => return Ok(expr.clone()),
            StrExpr::First(set) => match self.set(set, here)? {
                Some((set, _)) => StrExpr::First(sets::first_of(set)),
                None => nothing(),
            },
            StrExpr::Name(kind, set) => match self.set(set, here)? {
                Some((set, classes)) => match self.name(*kind, &set, &classes) {
                    Some(name) => StrExpr::Const(name),
                    None => StrExpr::Name(*kind, set),
                },
                None => nothing(),
            },
            StrExpr::Number(a) => StrExpr::Number(Box::new(self.num(a, here)?)),
            StrExpr::Bool(a) => StrExpr::Bool(Box::new(self.bool(a, here)?)),
            StrExpr::Concat(parts) => {
                let parts = parts.iter().map(|part| self.str(part, here));
                let mut parts = parts.collect::<Evaluated<Vec<_>>>()?;
                parts.retain(|part| *part != nothing());
                match parts.len() {
                    0 => nothing(),
                    1 => parts.remove(0),
                    _ => StrExpr::Concat(parts),
                }
            }
            StrExpr::Before(a, b) => StrExpr::Before(text(a)?, text(b)?),
            StrExpr::After(a, b) => StrExpr::After(text(a)?, text(b)?),
            StrExpr::Substring(a, from, length) => {
                let from = Box::new(self.num(from, here)?);
                let length = length.as_ref().map(|length| self.num(length, here)).transpose()?;
                if matches!(length, Some(NumExpr::Const(length)) if length.is_nan() || length < 0.5)
                {
                    return Ok(nothing());
                }
                StrExpr::Substring(text(a)?, from, length.map(Box::new))
            }
            StrExpr::Normalize(a) => StrExpr::Normalize(text(a)?),
            StrExpr::Translate(a, b, c) => StrExpr::Translate(text(a)?, text(b)?, text(c)?),
        };
        self.folded_str(simple)
    }

    /// The name of the first node of a set, where all that it may be have the same.
    fn name(&self, kind: NameKind, set: &NodeSet, classes: &Classes) -> Option<String> {
        let mut names = classes.iter().map(|class| self.name_of(kind, class));
        let first = names.next()?;
        // Where there is no node, there is no name.
        let is_sure = first.is_empty() || *set == NodeSet::context();
        (is_sure && names.all(|name| name == first)).then_some(first)
    }
}

/// The least that a number can be which is always a whole one.
fn least(expr: &NumExpr) -> Option<f64> {
    match expr {
        NumExpr::Count(_) | NumExpr::Length(_) => Some(0.0),
        NumExpr::Position | NumExpr::Last => Some(1.0),
        _ => None,
    }
}

/// How a whole number that is not below the least compares with a limit, if that decides.
fn against_amount(least: Option<f64>, cmp: Cmp, limit: f64) -> Option<bool> {
    let least = least?;
    let is_never = limit < least || limit.fract() != 0.0;
    match cmp {
        Cmp::Eq if is_never => Some(false),
        Cmp::Ne if is_never => Some(true),
        Cmp::Lt if limit <= least => Some(false),
        Cmp::Le if limit < least => Some(false),
        Cmp::Gt if limit < least => Some(true),
        Cmp::Ge if limit <= least => Some(true),
        _ => None,
    }
}

/// Whether a string has a part that another has not, so that they differ.
fn has_more(string: &StrExpr, other: &StrExpr) -> bool {
    match (string, other) {
        (StrExpr::Concat(parts), StrExpr::Const(text)) => parts.iter().any(|part| {
            matches!(part, StrExpr::Const(part) if !crate::xpath::text::contains(text, part))
        }),
        _ => false,
    }
}
