//! Beginnings of strings: a comparison with a short text need not build a long one.

use std::borrow::Cow;

use super::program::Use;
use super::{Dag, Place};
use crate::eval::{Context, Evaluated, Evaluator};
use crate::xpath::ir::{BoolExpr, NumExpr, StrExpr};
use crate::xpath::text;

/// What has been worked out of a string, and whether it is all of it.
type Beginning<'a> = (Cow<'a, str>, bool);

impl<'a> Dag<'a, '_> {
    /// Whether a string is equal to a text, or begins with it.
    pub(super) fn compared_with(
        &self,
        expr: &'a BoolExpr,
        at: Context<Place>,
    ) -> Evaluated<Option<bool>> {
        let (string, wanted, begins) = match expr {
            BoolExpr::Texts(_, a, StrExpr::Const(wanted))
            | BoolExpr::Texts(_, StrExpr::Const(wanted), a) => (a, wanted, false),
            BoolExpr::StartsWith(a, StrExpr::Const(wanted)) => (a, wanted, true),
            BoolExpr::Text(a) => {
                let (beginning, _) = self.beginning(a, at, 1)?;
                return Ok(Some(!beginning.is_empty()));
            }
            _ => return Ok(None),
        };
        let (beginning, is_all) = self.beginning(string, at, wanted.len() + 1)?;
        let holds = match begins {
            true => beginning.starts_with(wanted.as_str()),
            false => is_all && beginning == wanted.as_str(),
        };
        Ok(Some(holds != matches!(expr, BoolExpr::Texts(true, ..))))
    }

    /// At least so many bytes of a string, or all of it.
    fn beginning(
        &self,
        expr: &'a StrExpr,
        at: Context<Place>,
        bytes: usize,
    ) -> Evaluated<Beginning<'a>> {
        self.local.budget.spend(1)?;
        match expr {
            StrExpr::First(set) => match self.used_first(set, at)? {
                None => Ok((Cow::Borrowed(""), true)),
                Some(code) => self.string_beginning(code, bytes),
            },
            StrExpr::Concat(parts) => {
                let mut joined = Cow::Borrowed("");
                for part in parts {
                    let wanted = bytes.saturating_sub(joined.len());
                    let (more, is_all) = self.beginning(part, at, wanted)?;
                    joined = text::join(joined, more);
                    if !is_all || joined.len() > bytes {
                        return Ok((joined, false));
                    }
                }
                Ok((joined, true))
            }
            StrExpr::Normalize(a) => self.shortened(a, at, bytes, |value, is_all| {
                let mut short = text::normalize(value);
                if !is_all {
                    // The last word may go on.
                    short.truncate(short.rfind(' ').unwrap_or(0));
                }
                Some(short)
            }),
            StrExpr::Translate(a, from, to) => {
                let (from, to) = (self.str(from, at)?, self.str(to, at)?);
                self.shortened(a, at, bytes, |value, _| Some(text::translate(value, &from, &to)))
            }
            StrExpr::Before(a, mark) => {
                let mark = self.str(mark, at)?;
                let mut size = bytes.max(64);
                loop {
                    let (value, is_all) = self.beginning(a, at, size)?;
                    self.local.budget.read(&value)?;
                    if is_all || text::contains(&value, &mark) {
                        return Ok((Cow::Owned(text::before(&value, &mark).to_owned()), true));
                    }
                    size = value.len() * 4;
                }
            }
            StrExpr::After(a, mark) => {
                let mark = self.str(mark, at)?;
                self.shortened(a, at, bytes, |value, is_all| {
                    (is_all || text::contains(value, &mark))
                        .then(|| text::after(value, &mark).to_owned())
                })
            }
            StrExpr::Substring(a, from, length) => {
                let Some(length) = length else {
                    let from = self.num(from, at)?;
                    return self.shortened(a, at, bytes, |value, _| {
                        Some(text::substring(value, from, None).to_owned())
                    });
                };
                let (from, length) = (self.num(from, at)?, self.num(length, at)?);
                // A character has at most four bytes.
                let end = 4.0 * (from + length + 2.0);
                let (value, _) = if end.is_finite() {
                    self.beginning(a, at, end.max(0.0) as usize)?
                } else {
                    (self.str(a, at)?, true)
                };
                self.local.budget.read(&value)?;
                Ok((Cow::Owned(text::substring(&value, from, Some(length)).to_owned()), true))
            }
            _ => Ok((self.str(expr, at)?, true)),
        }
    }

    /// What a function leaves of a string, of which as much is read as that takes.
    fn shortened(
        &self,
        a: &'a StrExpr,
        at: Context<Place>,
        bytes: usize,
        function: impl Fn(&str, bool) -> Option<String>,
    ) -> Evaluated<Beginning<'a>> {
        let mut size = bytes.max(64);
        loop {
            let (value, is_all) = self.beginning(a, at, size)?;
            self.local.budget.spend(1 + value.len() / 4)?;
            if let Some(short) = function(&value, is_all)
                && (is_all || short.len() >= bytes)
            {
                return Ok((Cow::Owned(short), is_all));
            }
            size = value.len() * 4;
        }
    }

    fn used_first(
        &self,
        set: &'a crate::xpath::ir::NodeSet,
        at: Context<Place>,
    ) -> Evaluated<Option<u32>> {
        Ok(self.used(set, Use::First, at)?.checked_sub(1))
    }

    /// The number of a string, and of the length of one.
    pub(super) fn known_number(
        &self,
        expr: &'a NumExpr,
        at: Context<Place>,
    ) -> Evaluated<Option<f64>> {
        let (set, used, none) = match expr {
            NumExpr::Length(a) => match &**a {
                StrExpr::First(set) => (set, Use::Length, 0.0),
                _ => return Ok(None),
            },
            NumExpr::Text(a) => match &**a {
                StrExpr::First(set) => (set, Use::Number, f64::NAN),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(match self.used(set, used, at)? {
            0 => none,
            found => self.values.borrow().number(found - 1),
        }))
    }
}
