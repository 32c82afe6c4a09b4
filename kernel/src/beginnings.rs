//! Beginnings of strings: a comparison with a short text need not build a long one.

use std::borrow::Cow;

use crate::eval::{Context, Evaluated, Evaluator};
use crate::xpath::ir::{BoolExpr, NodeSet, StrExpr};
use crate::xpath::{number, text};

/// What has been worked out of a string, and whether it is all of it.
pub type Beginning<'a> = (Cow<'a, str>, bool);

/// How many bytes of two strings are compared before all of them are.
pub const COMPARED: usize = 64;
/// A function is first tried on so many bytes of its operand.
const SHORT: usize = 12;
/// How many bytes of a string say mostly that it is no number.
pub const NUMERIC: usize = 24;

/// Whether two strings are equal, where their beginnings tell.
pub fn are_same(a: &Beginning<'_>, b: &Beginning<'_>) -> Option<bool> {
    let ((a, is_all_of_a), (b, is_all_of_b)) = (a, b);
    let shared = a.len().min(b.len());
    if a.as_bytes()[..shared] != b.as_bytes()[..shared] {
        return Some(false);
    }
    match (is_all_of_a, is_all_of_b) {
        (true, true) => Some(a.len() == b.len()),
        // What is all there is ends before the other does.
        (true, false) if b.len() > a.len() => Some(false),
        (false, true) if a.len() > b.len() => Some(false),
        _ => None,
    }
}

/// Evaluates strings as far as somebody reads them.
pub trait Beginnings<'a>: Evaluator<'a> {
    /// At least so many bytes of the string-value of the first node of a set, or all of it.
    fn first_beginning(
        &self,
        set: &'a NodeSet,
        at: Context<Self::Node>,
        bytes: usize,
    ) -> Evaluated<Beginning<'a>>;

    /// Whether a string is equal to another, begins with a text or contains it, where a part of it tells.
    fn compared_with(
        &self,
        expr: &'a BoolExpr,
        at: Context<Self::Node>,
    ) -> Evaluated<Option<bool>> {
        let (string, wanted, begins) = match expr {
            BoolExpr::Texts(_, a, StrExpr::Const(wanted))
            | BoolExpr::Texts(_, StrExpr::Const(wanted), a) => (a, wanted, false),
            BoolExpr::StartsWith(a, StrExpr::Const(wanted)) => (a, wanted, true),
            BoolExpr::Text(a) => {
                let (beginning, _) = self.beginning(a, at, 1)?;
                return Ok(Some(!beginning.is_empty()));
            }
            BoolExpr::Contains(a, StrExpr::Const(part)) => {
                return self.has(a, part, at).map(Some);
            }
            BoolExpr::Texts(unequal, a, b) => {
                let same = self.are_same(a, b, at)?;
                return Ok(same.map(|same| same != *unequal));
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
        at: Context<Self::Node>,
        bytes: usize,
    ) -> Evaluated<Beginning<'a>> {
        self.budget().spend(1)?;
        match expr {
            StrExpr::First(set) => self.first_beginning(set, at, bytes),
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
                let mut size = bytes.clamp(SHORT, COMPARED);
                loop {
                    let (value, is_all) = self.beginning(a, at, size)?;
                    self.budget().spend(1 + value.len() / 4)?;
                    if is_all || text::contains(&value, &mark) {
                        return Ok((Cow::Owned(text::before(&value, &mark).to_owned()), true));
                    }
                    size = value.len().saturating_mul(4).max(SHORT);
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
                self.budget().read(&value)?;
                Ok((Cow::Owned(text::substring(&value, from, Some(length)).to_owned()), true))
            }
            _ => Ok((self.str(expr, at)?, true)),
        }
    }

    /// What a function leaves of a string, of which as much is read as that takes.
    fn shortened(
        &self,
        a: &'a StrExpr,
        at: Context<Self::Node>,
        bytes: usize,
        function: impl Fn(&str, bool) -> Option<String>,
    ) -> Evaluated<Beginning<'a>> {
        let mut size = bytes.max(SHORT);
        loop {
            let (value, is_all) = self.beginning(a, at, size)?;
            self.budget().spend(1 + value.len() / 4)?;
            if let Some(short) = function(&value, is_all)
                && (is_all || short.len() >= bytes)
            {
                return Ok((Cow::Owned(short), is_all));
            }
            size = value.len().saturating_mul(4).max(SHORT);
        }
    }

    /// Whether two strings are equal, where their beginnings tell.
    fn are_same(
        &self,
        a: &'a StrExpr,
        b: &'a StrExpr,
        at: Context<Self::Node>,
    ) -> Evaluated<Option<bool>> {
        let (a, b) = (self.beginning(a, at, COMPARED)?, self.beginning(b, at, COMPARED)?);
        self.budget().read(&a.0)?;
        Ok(are_same(&a, &b))
    }

    /// The number of a string.
    fn number_of(&self, a: &'a StrExpr, at: Context<Self::Node>) -> Evaluated<f64> {
        let (beginning, is_all) = self.beginning(a, at, NUMERIC)?;
        if is_all {
            return Ok(number::parse(&beginning));
        }
        match number::is_none(&beginning) {
            Some(_) => Ok(f64::NAN),
            None => Ok(number::parse(&self.str(a, at)?)),
        }
    }

    /// How many characters a string has.
    fn length_of(&self, a: &'a StrExpr, at: Context<Self::Node>) -> Evaluated<f64> {
        let (all, _) = self.beginning(a, at, usize::MAX)?;
        self.budget().read(&all)?;
        Ok(all.chars().count() as f64)
    }

    /// Whether a string contains a text.
    fn has(&self, a: &'a StrExpr, part: &str, at: Context<Self::Node>) -> Evaluated<bool> {
        let mut size = COMPARED.max(part.len());
        loop {
            let (beginning, is_all) = self.beginning(a, at, size)?;
            self.budget().spend(1 + beginning.len() / 4)?;
            let contains = text::contains(&beginning, part);
            if contains || is_all {
                return Ok(contains);
            }
            size = beginning.len().saturating_mul(4).max(SHORT);
        }
    }
}
