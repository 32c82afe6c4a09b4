//! What operators ask of sets, answered by compiled functions.

use std::borrow::Cow;

use super::compile::{against_number, compared, first_test};
use super::program::Use;
use super::values::{INEXACT, Stored, Value};
use super::{Dag, Place};
use crate::beginnings::{self, Beginnings, COMPARED};
use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator, name_text};
use crate::image::{DOCUMENT, ElementId};
use crate::plan::anchors::{ValueTest, constant};
use crate::plan::local::Item;
use crate::plan::texts::Fingerprint;
use crate::xpath::ir::{BoolExpr, Cmp, NameKind, NodeSet, NumExpr, StrExpr};
use crate::xpath::text;

impl<'a> Dag<'a, '_> {
    pub(super) fn used(&self, set: &'a NodeSet, used: Use, at: Context<Place>) -> Evaluated<Value> {
        self.ask(self.program.entry(set, used), at.node)
    }

    /// What is asked of a node that a set leads to.
    pub(super) fn leaf(
        &self,
        used: Use,
        test: Option<ValueTest<'a>>,
        item: Item,
    ) -> Evaluated<Value> {
        let values = &self.values;
        let (texts, own) = self.layers.texts(item);
        Ok(match (used, test) {
            (Use::Exists, _) => 1,
            (Use::Count, _) => values.borrow_mut().number_code(1.0),
            (Use::Test, Some(test)) => Value::from(texts.passes(own, &test)?),
            (Use::FirstTest, Some(test)) => 1 + Value::from(texts.passes(own, &test)?),
            (Use::Sum, _) => {
                let number = texts.number(own)?;
                values.borrow_mut().sum_code(number)
            }
            (Use::Number | Use::Min | Use::Max, _) => {
                let number = texts.number(own)?;
                values.borrow_mut().only_number(used.op(), number)
            }
            (Use::Length, _) => {
                let characters = texts.characters(own)? as f64;
                values.borrow_mut().only_number(used.op(), characters)
            }
            (Use::Name(kind), _) => {
                let name = self.name_of(kind, item);
                values.borrow_mut().only(used.op(), name)
            }
            (Use::First, _) => 1 + values.borrow_mut().node_code(item),
            (Use::Shared(comparison), _) => {
                match self.program.shared[comparison as usize].value(texts, own)? {
                    Some(value) => values.borrow_mut().only(used.op(), value),
                    None => 0,
                }
            }
            _ => match texts.fingerprint(own)? {
                Some(fingerprint) => {
                    let code = self.long_code(fingerprint, item)?;
                    values.borrow_mut().only_code(used.op(), code)
                }
                None => {
                    let value = texts.value(own)?;
                    values.borrow_mut().only(used.op(), value)
                }
            },
        })
    }

    /// The code of a long string: it is compared with those only that look the same.
    fn long_code(&self, fingerprint: Fingerprint, item: Item) -> Evaluated<Value> {
        let candidates = self.values.borrow().long_codes(fingerprint);
        for code in candidates {
            let (texts, own) = self.layers.texts(item);
            if self.string(code)? == texts.value(own)? {
                return Ok(code);
            }
        }
        Ok(self.values.borrow_mut().add_long(fingerprint, item))
    }

    fn name_of(&self, kind: NameKind, item: Item) -> Cow<'a, str> {
        let (texts, item) = self.layers.texts(item);
        let store = texts.local.store;
        match item {
            Item::Element(id) => match store.elements()[id as usize].name {
                DOCUMENT => Cow::Borrowed(""),
                name => name_text(store, kind, name),
            },
            Item::Attribute(pair) | Item::Instruction(pair) => {
                name_text(store, kind, store.pair(pair).0)
            }
            Item::Text(_) | Item::Comment(_) => Cow::Borrowed(""),
        }
    }

    /// The `xml:lang` of an element, as the result of a field.
    pub(super) fn own_language(&self, element: ElementId) -> Evaluated<Option<Value>> {
        let (_, store, row) = self.layers.element(element);
        self.local.budget.spend(store.width(row))?;
        for &pair in store.attributes(row) {
            let (name, value) = store.pair(pair);
            if store.is_language(name) {
                let value = Cow::Borrowed(store.strings().get(value));
                return Ok(Some(1 + self.values.borrow_mut().string_code(value)));
            }
        }
        Ok(None)
    }

    fn number(&self, code: Value) -> f64 {
        self.values.borrow().number(code)
    }
}

impl<'a> Evaluator<'a> for Dag<'a, '_> {
    type Node = Place;

    fn budget(&self) -> &Budget {
        self.local.budget
    }

    fn exists(&self, set: &'a NodeSet, at: Context<Place>) -> Evaluated<bool> {
        Ok(self.used(set, Use::Exists, at)? != 0)
    }

    fn any(
        &self,
        set: &'a NodeSet,
        at: Context<Place>,
        test: &dyn Fn(&str) -> bool,
    ) -> Evaluated<bool> {
        let found = self.used(set, Use::Values, at)?;
        let set = self.values.borrow().set(found);
        for &code in &*set {
            let value = self.string(code)?;
            self.local.budget.read(&value)?;
            if test(&value) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn count(&self, set: &'a NodeSet, at: Context<Place>) -> Evaluated<usize> {
        Ok(self.number(self.used(set, Use::Count, at)?) as usize)
    }

    fn sum(&self, set: &'a NodeSet, at: Context<Place>) -> Evaluated<f64> {
        match self.used(set, Use::Sum, at)? {
            INEXACT => self.beyond(),
            sum => Ok(self.number(sum)),
        }
    }

    /// The different string-values, in no order.
    fn values(&self, set: &'a NodeSet, at: Context<Place>) -> Evaluated<Vec<Cow<'a, str>>> {
        let found = self.used(set, Use::Values, at)?;
        let set = self.values.borrow().set(found);
        set.iter().map(|&code| self.string(code)).collect()
    }

    fn first(&self, set: &'a NodeSet, at: Context<Place>) -> Evaluated<Cow<'a, str>> {
        Ok(match self.used(set, Use::First, at)? {
            0 => Cow::Borrowed(""),
            found => self.string(found - 1)?,
        })
    }

    fn name(
        &self,
        kind: NameKind,
        set: &'a NodeSet,
        at: Context<Place>,
    ) -> Evaluated<Cow<'a, str>> {
        Ok(match self.used(set, Use::Name(kind), at)? {
            0 => Cow::Borrowed(""),
            found => self.values.borrow().string(found - 1),
        })
    }

    fn sets(
        &self,
        cmp: Cmp,
        a: &'a NodeSet,
        b: &'a NodeSet,
        at: Context<Place>,
    ) -> Evaluated<bool> {
        let (of_a, of_b) = compared(cmp);
        let a = self.used(a, of_a, at)?;
        if a == 0 {
            return Ok(false);
        }
        let b = self.used(b, of_b, at)?;
        if b == 0 {
            return Ok(false);
        }
        let values = self.values.borrow();
        Ok(match cmp {
            Cmp::Eq => {
                let (a, b) = (values.set(a), values.set(b));
                self.local.budget.spend(a.len().min(b.len()))?;
                let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
                few.iter().any(|code| many.binary_search(code).is_ok())
            }
            // Unequal unless both sides are one and the same value.
            Cmp::Ne => a == 1 || a != b,
            _ => cmp.numbers(values.number(a - 1), values.number(b - 1)),
        })
    }

    fn is_language(&self, node: Place, wanted: &str) -> Evaluated<bool> {
        let own = match node.item {
            Item::Element(element) => self.own_language(element)?,
            _ => None,
        };
        let atom = self.program.language.expect("lang() was compiled");
        let found = own.unwrap_or_else(|| self.field(atom, node.env));
        Ok(found != 0 && text::is_language(&self.values.borrow().string(found - 1), wanted))
    }

    fn known(&self, expr: &'a BoolExpr, at: Context<Place>) -> Evaluated<Option<bool>> {
        if let Some(condition) = self.program.condition(expr)
            && !self.is_begun(expr)
        {
            return Ok(Some(self.ask(condition, at.node)? != 0));
        }
        let tested = match expr {
            BoolExpr::SetNumber(_, set, b) if constant(b).is_some() => Some(set),
            BoolExpr::SetText(_, set, StrExpr::Const(_)) => Some(set),
            _ => None,
        };
        if let Some(set) = tested {
            return Ok(Some(self.used(set, Use::Test, at)? != 0));
        }
        if let BoolExpr::SetNumber(cmp, set, b) = expr {
            return self.against_number(*cmp, set, b, at);
        }
        if let BoolExpr::SetText(true, set, b) = expr {
            // One of several values is another.
            return Ok(Some(match self.used(set, Use::Single, at)? {
                0 => false,
                1 => true,
                only => self.string(only - 2)? != self.str(b, at)?,
            }));
        }
        let Some((set, test)) = first_test(expr) else { return self.compared_with(expr, at) };
        let holds = match self.used(set, Use::FirstTest, at)? {
            0 => test.holds(""),
            found => found == 2,
        };
        Ok(Some(holds != matches!(expr, BoolExpr::Texts(true, ..))))
    }

    fn known_num(&self, expr: &'a NumExpr, at: Context<Place>) -> Evaluated<Option<f64>> {
        self.known_number(expr, at)
    }
}

impl<'a> Dag<'a, '_> {
    /// Whether any node of a set compares so with a number, where its least and greatest tell.
    fn against_number(
        &self,
        cmp: Cmp,
        set: &'a NodeSet,
        b: &'a NumExpr,
        at: Context<Place>,
    ) -> Evaluated<Option<bool>> {
        if !cmp.is_equality() {
            // The set first: where it has no number, the other side does not matter.
            let extreme = self.used(set, against_number(cmp), at)?;
            return Ok(Some(match extreme.checked_sub(1) {
                None => false,
                Some(extreme) => cmp.numbers(self.number(extreme), self.num(b, at)?),
            }));
        }
        let b = self.num(b, at)?;
        // What is no number is equal to nothing, and unequal to everything.
        let is_none = || Ok(cmp == Cmp::Ne && self.used(set, Use::Values, at)? != 0);
        b.is_nan().then(is_none).transpose()
    }

    /// Whether the first node of a set is unequal to what the set is compared with, or to the first of that,
    /// as far as their beginnings tell.
    pub(super) fn are_firsts_unequal(
        &self,
        expr: &'a BoolExpr,
        at: Context<Place>,
    ) -> Evaluated<bool> {
        let first = |set| self.used(set, Use::First, at);
        let (set, b) = match expr {
            BoolExpr::Sets(_, set, b) => match first(b)?.checked_sub(1) {
                Some(b) => (set, self.string_beginning(b, COMPARED)?),
                None => return Ok(false),
            },
            BoolExpr::SetText(_, set, b) => (set, self.beginning(b, at, COMPARED)?),
            _ => return Ok(false),
        };
        let Some(a) = first(set)?.checked_sub(1) else { return Ok(false) };
        let a = self.string_beginning(a, COMPARED)?;
        self.local.budget.read(&a.0)?;
        Ok(beginnings::are_same(&a, &b) == Some(false))
    }

    /// At least so many bytes of a string that a function found, or all of it.
    pub(super) fn string_beginning(
        &self,
        code: Value,
        bytes: usize,
    ) -> Evaluated<(Cow<'a, str>, bool)> {
        let stored = self.values.borrow().stored(code);
        match stored {
            Stored::Text(text) => Ok((text, true)),
            Stored::Node(item) => {
                let (texts, own) = self.layers.texts(item);
                texts.beginning(own, bytes)
            }
        }
    }

    /// A string that a function found.
    pub(super) fn string(&self, code: Value) -> Evaluated<Cow<'a, str>> {
        let stored = self.values.borrow().stored(code);
        match stored {
            Stored::Text(text) => Ok(text),
            Stored::Node(item) => {
                let (texts, own) = self.layers.texts(item);
                texts.value(own)
            }
        }
    }
}
