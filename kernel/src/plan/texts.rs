//! String-values of elements, without building those that need not be.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;

use super::anchors::ValueTest;
use super::finder::Finder;
use super::local::{Item, Local};
use super::shared::AllShared;
use crate::beginnings::NUMERIC;
use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::xml::chars::is_space;
use crate::xpath::number;

/// String-values of up to so many bytes are kept; longer ones are put together from them.
const MAX_KEPT: usize = 1024;
/// Longer string-values than this are told apart by their fingerprints.
const MAX_SHORT: usize = 256;
/// A prime, and the base of the polynomials over it whose values are fingerprints.
const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0f3c_9d15_84ab_e627;

/// A string-value's length and the value of the polynomial whose coefficients are its bytes. Equal
/// strings have equal fingerprints, however they are put together.
pub type Fingerprint = (usize, u64);

/// The string-values of one store's nodes.
pub struct Texts<'a> {
    pub local: Local<'a>,
    /// The bytes of each element's string-value, where they are known beforehand.
    measured: &'a [u32],
    /// One above the bytes of each element's string-value.
    lengths: RefCell<Vec<u32>>,
    /// The polynomial's value for each element, and the base to the power of its length.
    polynomials: RefCell<HashMap<ElementId, (u64, u64)>>,
    kept: RefCell<HashMap<ElementId, Rc<str>>>,
    finders: RefCell<HashMap<String, Rc<Finder>>>,
    /// Whether every character is one byte.
    is_ascii: OnceCell<bool>,
    /// What comparisons of sets can have in common.
    pub shared: AllShared<'a>,
}

impl<'a> Texts<'a> {
    pub fn new(local: Local<'a>, measured: &'a [u32]) -> Self {
        Texts {
            local,
            measured,
            lengths: RefCell::default(),
            polynomials: RefCell::default(),
            kept: RefCell::default(),
            finders: RefCell::default(),
            is_ascii: OnceCell::new(),
            shared: AllShared::default(),
        }
    }

    /// The string-value of a node.
    pub fn value(&self, item: Item) -> Evaluated<Cow<'a, str>> {
        let Item::Element(id) = item else { return self.local.value(item) };
        if let Some(only) = self.only_text(id) {
            self.local.budget.read(only)?;
            return Ok(Cow::Borrowed(only));
        }
        let mut whole = String::with_capacity(self.length(id)?);
        self.local.budget.spend(whole.capacity() / 16)?;
        self.pieces(id, &mut |piece| {
            whole.push_str(piece);
            Ok(false)
        })?;
        Ok(Cow::Owned(whole))
    }

    /// The string-value of a node, where it is one text of the store.
    pub fn single(&self, item: Item) -> Option<&'a str> {
        let store = self.local.store;
        Some(store.strings().get(match item {
            Item::Element(id) => return self.only_text(id),
            Item::Text(id) | Item::Comment(id) => id,
            Item::Attribute(pair) | Item::Instruction(pair) => store.pair(pair).1,
        }))
    }

    /// The beginning of a node's string-value: at least `bytes` of it, or all. Says whether it is all.
    pub fn beginning(&self, item: Item, bytes: usize) -> Evaluated<(Cow<'a, str>, bool)> {
        if let Some(text) = self.single(item) {
            let mut end = text.len().min(bytes);
            while !text.is_char_boundary(end) {
                end += 1;
            }
            self.local.budget.read(&text[..end])?;
            return Ok((Cow::Borrowed(&text[..end]), end == text.len()));
        }
        let Item::Element(id) = item else { return Ok((self.local.value(item)?, true)) };
        if self.length(id)? <= bytes {
            return Ok((self.value(item)?, true));
        }
        // Mostly the last text is not much longer than what is wanted of it.
        let mut beginning = String::with_capacity(bytes + 40);
        self.begin(id, bytes, &mut beginning)?;
        self.local.budget.read(&beginning)?;
        Ok((Cow::Owned(beginning), false))
    }

    /// Adds the texts of an element until there are so many bytes. True once there are.
    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn begin(&self, id: ElementId, bytes: usize, so_far: &mut String) -> Evaluated<bool> {
        for child in self.local.store.children(id) {
            self.local.budget.spend(1)?;
            let is_done = match child {
                Child::Element(child) => self.begin(child, bytes, so_far)?,
                Child::Text(value) => {
                    so_far.push_str(self.local.store.strings().get(value));
                    so_far.len() >= bytes
                }
                _ => false,
            };
            if is_done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many bytes a node's string-value has.
    pub fn bytes(&self, item: Item) -> Evaluated<usize> {
        match item {
            Item::Element(id) => self.length(id),
            _ => Ok(self.local.value(item)?.len()),
        }
    }

    /// The number of a node's string-value.
    pub fn number(&self, item: Item) -> Evaluated<f64> {
        // Most texts begin as no number does.
        if let Item::Element(id) = item
            && self.only_text(id).is_none()
            && self.begins_as_no_number(id)?.is_some()
        {
            return Ok(f64::NAN);
        }
        let (beginning, is_all) = self.beginning(item, NUMERIC)?;
        if number::is_none(&beginning).is_some() {
            return Ok(f64::NAN);
        }
        match is_all {
            true => Ok(number::parse(&beginning)),
            false => Ok(number::parse(&self.value(item)?)),
        }
    }

    /// After how many bytes it is certain that an element's string-value is no number, if its first sign
    /// tells.
    pub fn begins_as_no_number(&self, id: ElementId) -> Evaluated<Option<usize>> {
        let mut before = 0;
        let is_none = |sign: Option<u8>| !sign.is_some_and(begins_number);
        // What is empty is no number, but what begins so may be one.
        let sign = self.sign(id, &mut before)?;
        Ok(is_none(sign).then_some(if sign.is_some() { before + 1 } else { usize::MAX }))
    }

    /// The first byte of an element's string-value that is no white space, and how many bytes there are
    /// before it.
    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn sign(&self, id: ElementId, before: &mut usize) -> Evaluated<Option<u8>> {
        for child in self.local.store.children(id) {
            self.local.budget.spend(1)?;
            let sign = match child {
                Child::Element(child) => self.sign(child, before)?,
                Child::Text(text) => {
                    let text = self.local.store.strings().get(text);
                    self.local.budget.spend(text.len() / 16)?;
                    let sign = text.bytes().position(|byte| !is_space(byte));
                    *before += sign.unwrap_or(text.len());
                    sign.map(|at| text.as_bytes()[at])
                }
                _ => None,
            };
            if sign.is_some() {
                return Ok(sign);
            }
        }
        Ok(None)
    }

    /// How many characters a node's string-value has.
    pub fn characters(&self, item: Item) -> Evaluated<usize> {
        let Item::Element(id) = item else {
            return Ok(self.local.value(item)?.chars().count());
        };
        let text = self.local.store.strings().parts().0;
        if self.is_ascii.get().is_none() {
            self.local.budget.spend(text.len() / 256)?;
        }
        if *self.is_ascii.get_or_init(|| text.is_ascii()) {
            return self.length(id);
        }
        let mut characters = 0;
        self.pieces(id, &mut |piece| {
            self.local.budget.read(piece)?;
            characters += piece.chars().count();
            Ok(false)
        })?;
        Ok(characters)
    }

    /// Whether a node's string-value passes a test.
    pub fn passes(&self, item: Item, test: &ValueTest<'_>) -> Evaluated<bool> {
        let Item::Element(id) = item else { return Ok(test.holds(&self.local.value(item)?)) };
        match test {
            ValueTest::Present => Ok(true),
            ValueTest::Equals(wanted) => {
                Ok(self.length(id)? == wanted.len() && self.begins(id, wanted)?)
            }
            ValueTest::Differs(wanted) => {
                Ok(self.length(id)? != wanted.len() || !self.begins(id, wanted)?)
            }
            ValueTest::StartsWith(wanted) => self.begins(id, wanted),
            ValueTest::Contains(wanted) if self.length(id)? < wanted.len() => Ok(false),
            ValueTest::Contains("") => Ok(true),
            ValueTest::Contains(wanted) => match self.only_text(id) {
                Some(only) => {
                    self.local.budget.read(only)?;
                    Ok(test.holds(only))
                }
                None => self.finder(wanted)?.finds(self.local, id),
            },
            ValueTest::Number(cmp, wanted) => Ok(cmp.numbers(self.number(item)?, *wanted)),
        }
    }

    fn finder(&self, wanted: &str) -> Evaluated<Rc<Finder>> {
        if let Some(known) = self.finders.borrow().get(wanted) {
            return Ok(Rc::clone(known));
        }
        let finder = Rc::new(Finder::new(wanted, self.local)?);
        self.finders.borrow_mut().insert(wanted.to_owned(), Rc::clone(&finder));
        Ok(finder)
    }

    fn begins(&self, id: ElementId, wanted: &str) -> Evaluated<bool> {
        let mut left = wanted.as_bytes();
        if left.is_empty() {
            return Ok(true);
        }
        let mut is_same = true;
        self.pieces(id, &mut |piece| {
            let shared = piece.len().min(left.len());
            is_same = piece.as_bytes()[..shared] == left[..shared];
            left = &left[shared..];
            Ok(!is_same || left.is_empty())
        })?;
        self.local.budget.spend(wanted.len() / 16)?;
        Ok(is_same && left.is_empty())
    }

    /// Visits an element's texts in document order, several at a time, until a visit answers true.
    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn pieces(
        &self,
        id: ElementId,
        visit: &mut dyn FnMut(&str) -> Evaluated<bool>,
    ) -> Evaluated<bool> {
        for child in self.local.store.children(id) {
            self.local.budget.spend(1)?;
            let done = match child {
                Child::Element(child) => match self.length(child)? {
                    0 => false,
                    length if length <= MAX_KEPT => {
                        let kept = self.kept(child, length)?;
                        visit(&kept)?
                    }
                    _ => self.pieces(child, visit)?,
                },
                Child::Text(value) => visit(self.local.store.strings().get(value))?,
                _ => false,
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn kept(&self, id: ElementId, length: usize) -> Evaluated<Rc<str>> {
        if let Some(kept) = self.kept.borrow().get(&id) {
            return Ok(Rc::clone(kept));
        }
        let mut whole = String::with_capacity(length);
        self.pieces(id, &mut |piece| {
            whole.push_str(piece);
            Ok(false)
        })?;
        self.local.budget.read(&whole)?;
        let kept: Rc<str> = whole.into();
        self.kept.borrow_mut().insert(id, Rc::clone(&kept));
        Ok(kept)
    }

    /// The text of an element that has no other child.
    fn only_text(&self, id: ElementId) -> Option<&'a str> {
        let mut children = self.local.store.children(id);
        match (children.next(), children.next()) {
            (None, _) => Some(""),
            (Some(Child::Text(value)), None) => Some(self.local.store.strings().get(value)),
            _ => None,
        }
    }

    /// The bytes of an element's string-value.
    fn length(&self, id: ElementId) -> Evaluated<usize> {
        if let Some(&known) = self.measured.get(id as usize)
            && known != u32::MAX
        {
            return Ok(known as usize);
        }
        if let Some(only) = self.only_text(id) {
            return Ok(only.len());
        }
        if let Some(&known) = self.lengths.borrow().get(id as usize)
            && known != 0
        {
            return Ok(known as usize - 1);
        }
        let mut length = 0;
        for child in self.local.store.children(id) {
            self.local.budget.spend(1)?;
            length += match child {
                Child::Element(child) => self.length(child)?,
                Child::Text(value) => self.local.store.strings().get(value).len(),
                _ => 0,
            };
        }
        let mut lengths = self.lengths.borrow_mut();
        if lengths.is_empty() {
            self.local.budget.spend(self.local.store.elements().len() / 64)?;
            lengths.resize(self.local.store.elements().len(), 0);
        }
        // What is longer than a table can say is measured again.
        lengths[id as usize] = u32::try_from(length + 1).unwrap_or(0);
        Ok(length)
    }

    /// The fingerprint of a long string-value; none of a short one.
    pub fn fingerprint(&self, item: Item) -> Evaluated<Option<Fingerprint>> {
        match item {
            Item::Element(id) => {
                let length = self.length(id)?;
                if length <= MAX_SHORT {
                    return Ok(None);
                }
                Ok(Some((length, self.polynomial(id)?.0)))
            }
            _ => {
                let value = self.local.value(item)?;
                Ok((value.len() > MAX_SHORT).then(|| (value.len(), of_bytes(&value).0)))
            }
        }
    }

    fn polynomial(&self, id: ElementId) -> Evaluated<(u64, u64)> {
        if let Some(&known) = self.polynomials.borrow().get(&id) {
            return Ok(known);
        }
        let mut whole = (0, 1);
        for child in self.local.store.children(id) {
            self.local.budget.spend(1)?;
            let (value, power) = match child {
                Child::Element(child) => self.polynomial(child)?,
                Child::Text(text) => {
                    let text = self.local.store.strings().get(text);
                    self.local.budget.spend(text.len() / 4)?;
                    of_bytes(text)
                }
                _ => continue,
            };
            whole = (add(multiply(whole.0, power), value), multiply(whole.1, power));
        }
        self.polynomials.borrow_mut().insert(id, whole);
        Ok(whole)
    }
}

/// Whether a number may begin so.
fn begins_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'.')
}

fn of_bytes(text: &str) -> (u64, u64) {
    text.bytes().fold((0, 1), |(value, power), byte| {
        (add(multiply(value, BASE), u64::from(byte) + 1), multiply(power, BASE))
    })
}

fn multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    add((product & u128::from(PRIME)) as u64, (product >> 61) as u64)
}

fn add(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= PRIME { sum - PRIME } else { sum }
}
