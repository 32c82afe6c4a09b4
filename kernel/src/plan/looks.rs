//! What an expression sees of a string-value: all of it, or what a function makes of it.
//!
//! An expression may see the length of a serial number alone, or that it is no number. Two values of which it
//! sees the same are one to it.

use std::borrow::Cow;
use std::cell::Cell;

use super::anchors::ValueTest;
use super::dag::first_test;
use super::local::Item;
use super::texts::Texts;
use crate::beginnings::{Beginning, Beginnings, NUMERIC};
use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::xpath::ir::{BoolExpr, NameKind, NodeSet, NumExpr, StrExpr};
use crate::xpath::number;
use crate::xpath::parts::Part;

/// What is seen of a string-value.
#[derive(Debug, Clone, Copy)]
pub enum Look<'a> {
    /// Whether it passes a test.
    Test(ValueTest<'a>),
    /// Its number.
    Number,
    /// How many characters it has.
    Length,
    /// Its beginning, by the number of bytes.
    Beginning(usize),
    /// What an operator comes to that has no other operands.
    Function(Part<'a>),
    /// The value, if it is one that both sides of a comparison of sets can have.
    Shared(&'a BoolExpr),
}

/// What a look at a value saw, and how many bytes of it were looked at: of what begins with the same and
/// goes on, it sees the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<'a> {
    pub outcome: Outcome<'a>,
    pub bytes: usize,
}

/// What a look at a value saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

/// All bytes of a value.
const ALL: usize = usize::MAX;

impl<'a> Look<'a> {
    /// The look at the only set whose string-value an operator reads, of its first node; none where it
    /// reads more, or something else.
    pub fn only(part: Part<'a>) -> Option<(&'a NodeSet, Self)> {
        let set = only_set(part)?;
        Some((set, Look::Function(part)))
    }

    /// What it sees of a node.
    pub fn see(&self, texts: &Texts<'a>, item: Item) -> Evaluated<Seen<'a>> {
        let one = OneValue { texts, bytes: Cell::new(0) };
        let outcome = self.outcome(&one, item)?;
        Ok(Seen { outcome, bytes: one.bytes.get() })
    }

    fn outcome(&self, one: &OneValue<'_, 'a>, item: Item) -> Evaluated<Outcome<'a>> {
        let at = Context::only(item);
        Ok(Outcome::Number(match self {
            Look::Test(test) => u64::from(one.passes(item, test)?),
            Look::Number => bits(one.number(item)?),
            Look::Length => one.all_of(|texts| texts.characters(item))? as u64,
            Look::Function(Part::Bool(expr)) => u64::from(one.bool(expr, at)?),
            Look::Function(Part::Num(expr)) => bits(one.num(expr, at)?),
            Look::Function(Part::Str(expr)) => return Ok(Outcome::Text(one.str(expr, at)?)),
            Look::Function(Part::Set(..)) => {
                return Ok(Outcome::Text(one.all_of(|texts| texts.value(item))?));
            }
            Look::Shared(comparison) => return one.shared(comparison, item),
            Look::Beginning(bytes) => return Ok(Outcome::Text(one.read(item, *bytes)?.0)),
        }))
    }
}

/// What tells numbers apart: one that is none is like any other.
fn bits(number: f64) -> u64 {
    if number.is_nan() { u64::MAX } else { number.to_bits() }
}

/// The set of whose first node all operands are the string-value.
fn only_set(part: Part<'_>) -> Option<&NodeSet> {
    fn look<'a>(part: Part<'a>, found: &mut Option<&'a NodeSet>) -> bool {
        match part {
            Part::Str(StrExpr::First(set)) => *found.get_or_insert(set) == set,
            Part::Set(..) | Part::Num(NumExpr::Position | NumExpr::Last) => false,
            Part::Bool(BoolExpr::Lang(_)) => false,
            _ => part.all(|part| look(part, found)),
        }
    }
    let mut found = None;
    look(part, &mut found).then_some(found)?
}

/// Evaluates operators whose only operand is the string-value of the context node.
struct OneValue<'t, 'a> {
    texts: &'t Texts<'a>,
    /// How many bytes of it have been looked at.
    bytes: Cell<usize>,
}

impl<'a> OneValue<'_, 'a> {
    fn looked_at(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().max(bytes));
    }

    fn all_of<T>(&self, read: impl FnOnce(&Texts<'a>) -> Evaluated<T>) -> Evaluated<T> {
        self.looked_at(ALL);
        read(self.texts)
    }

    fn shared(&self, comparison: &BoolExpr, item: Item) -> Evaluated<Outcome<'a>> {
        let Some(shared) = self.texts.shared.get(comparison) else {
            return Ok(Outcome::Text(self.all_of(|texts| texts.value(item))?));
        };
        let is_long = self.texts.bytes(item)? > shared.longest();
        self.looked_at(if is_long { shared.longest() } else { ALL });
        let value = shared.value(self.texts, item)?;
        Ok(value.map_or(Outcome::Number(0), Outcome::Text))
    }

    /// The beginning of the value, no longer than it has to be.
    fn read(&self, item: Item, bytes: usize) -> Evaluated<Beginning<'a>> {
        let (beginning, is_all) = self.texts.beginning(item, bytes)?;
        if is_all && beginning.len() <= bytes {
            self.looked_at(ALL);
            return Ok((beginning, true));
        }
        let mut end = bytes;
        while !beginning.is_char_boundary(end) {
            end += 1;
        }
        self.looked_at(end);
        let short = match beginning {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
            Cow::Owned(mut text) => {
                text.truncate(end);
                Cow::Owned(text)
            }
        };
        Ok((short, false))
    }

    fn number(&self, item: Item) -> Evaluated<f64> {
        if let Some(text) = self.texts.single(item) {
            self.looked_at(number::is_none(text).unwrap_or(ALL));
            self.texts.local.budget.read(text)?;
            return Ok(number::parse(text));
        }
        if let Item::Element(id) = item
            && let Some(bytes) = self.texts.begins_as_no_number(id)?
        {
            self.looked_at(bytes);
            return Ok(f64::NAN);
        }
        let mut bytes = NUMERIC;
        loop {
            let (beginning, is_all) = self.texts.beginning(item, bytes)?;
            if let Some(decided) = number::is_none(&beginning) {
                self.looked_at(decided);
                return Ok(f64::NAN);
            }
            if is_all {
                self.looked_at(ALL);
                return Ok(number::parse(&beginning));
            }
            bytes = beginning.len() * 4;
        }
    }

    fn passes(&self, item: Item, test: &ValueTest<'a>) -> Evaluated<bool> {
        if let Some(text) = self.texts.single(item) {
            return self.passes_text(text, test);
        }
        Ok(match test {
            ValueTest::Present => true,
            ValueTest::Number(cmp, wanted) => cmp.numbers(self.number(item)?, *wanted),
            ValueTest::Contains(_) => self.all_of(|texts| texts.passes(item, test))?,
            ValueTest::Equals(wanted) | ValueTest::Differs(wanted) => {
                let (beginning, is_all) = self.read(item, wanted.len() + 1)?;
                let is_same = is_all && beginning == *wanted;
                is_same == matches!(test, ValueTest::Equals(_))
            }
            ValueTest::StartsWith(wanted) => self.read(item, wanted.len())?.0.starts_with(wanted),
        })
    }

    /// Whether a value that is one text passes a test.
    fn passes_text(&self, text: &str, test: &ValueTest<'a>) -> Evaluated<bool> {
        let bytes = match test {
            ValueTest::Present => 0,
            ValueTest::Equals(wanted) | ValueTest::Differs(wanted) => wanted.len() + 1,
            ValueTest::StartsWith(wanted) => wanted.len(),
            ValueTest::Contains(_) => ALL,
            ValueTest::Number(..) => number::is_none(text).unwrap_or(ALL),
        };
        self.looked_at(if text.len() <= bytes { ALL } else { bytes });
        self.texts.local.budget.spend(1 + text.len().min(bytes) / 16)?;
        Ok(test.holds(text))
    }
}

impl<'a> Evaluator<'a> for OneValue<'_, 'a> {
    type Node = Item;

    fn budget(&self) -> &Budget {
        self.texts.local.budget
    }

    fn exists(&self, _: &'a NodeSet, _: Context<Item>) -> Evaluated<bool> {
        Ok(true)
    }

    fn any(
        &self,
        _: &'a NodeSet,
        at: Context<Item>,
        test: &dyn Fn(&str) -> bool,
    ) -> Evaluated<bool> {
        Ok(test(&self.all_of(|texts| texts.value(at.node))?))
    }

    fn count(&self, _: &'a NodeSet, _: Context<Item>) -> Evaluated<usize> {
        Ok(1)
    }

    fn values(&self, set: &'a NodeSet, at: Context<Item>) -> Evaluated<Vec<Cow<'a, str>>> {
        Ok(vec![self.first(set, at)?])
    }

    fn first(&self, _: &'a NodeSet, at: Context<Item>) -> Evaluated<Cow<'a, str>> {
        self.all_of(|texts| texts.value(at.node))
    }

    /// Never asked: a name is no string-value.
    fn name(&self, _: NameKind, _: &'a NodeSet, _: Context<Item>) -> Evaluated<Cow<'a, str>> {
        Ok(Cow::Borrowed(""))
    }

    /// Never asked: it reads no string-value.
    fn is_language(&self, _: Item, _: &str) -> Evaluated<bool> {
        Ok(false)
    }

    fn known(&self, expr: &'a BoolExpr, at: Context<Item>) -> Evaluated<Option<bool>> {
        match first_test(expr) {
            Some((_, test)) => {
                let holds = self.passes(at.node, &test)?;
                Ok(Some(holds != matches!(expr, BoolExpr::Texts(true, ..))))
            }
            None => self.compared_with(expr, at),
        }
    }

    fn known_num(&self, expr: &'a NumExpr, at: Context<Item>) -> Evaluated<Option<f64>> {
        let (NumExpr::Text(a) | NumExpr::Length(a)) = expr else { return Ok(None) };
        Ok(Some(match (expr, &**a) {
            (NumExpr::Text(_), StrExpr::First(_)) => self.number(at.node)?,
            (NumExpr::Text(_), _) => self.number_of(a, at)?,
            (_, StrExpr::First(_)) => self.all_of(|texts| texts.characters(at.node))? as f64,
            _ => self.length_of(a, at)?,
        }))
    }
}

impl<'a> Beginnings<'a> for OneValue<'_, 'a> {
    fn first_beginning(
        &self,
        _: &'a NodeSet,
        at: Context<Item>,
        bytes: usize,
    ) -> Evaluated<Beginning<'a>> {
        self.read(at.node, bytes)
    }
}
