//! Strings and numbers as far as somebody reads them.

use std::borrow::Cow;

use super::program::Use;
use super::{Dag, Place};
use crate::beginnings::{Beginning, Beginnings};
use crate::eval::{Context, Evaluated};
use crate::xpath::ir::{NodeSet, NumExpr, StrExpr};

impl<'a> Beginnings<'a> for Dag<'a, '_> {
    fn first_beginning(
        &self,
        set: &'a NodeSet,
        at: Context<Place>,
        bytes: usize,
    ) -> Evaluated<Beginning<'a>> {
        match self.used(set, Use::First, at)?.checked_sub(1) {
            None => Ok((Cow::Borrowed(""), true)),
            Some(code) => self.string_beginning(code, bytes),
        }
    }
}

impl<'a> Dag<'a, '_> {
    /// The number of a string, and of the length of one.
    pub(super) fn known_number(
        &self,
        expr: &'a NumExpr,
        at: Context<Place>,
    ) -> Evaluated<Option<f64>> {
        let (set, used, none) = match expr {
            NumExpr::Length(a) => match &**a {
                StrExpr::First(set) => (set, Use::Length, 0.0),
                _ => return self.length_of(a, at).map(Some),
            },
            NumExpr::Text(a) => match &**a {
                StrExpr::First(set) => (set, Use::Number, f64::NAN),
                _ => return self.number_of(a, at).map(Some),
            },
            _ => return Ok(None),
        };
        Ok(Some(match self.used(set, used, at)? {
            0 => none,
            found => self.values.borrow().number(found - 1),
        }))
    }
}
