//! Which values two sets can have in common, in any document.
//!
//! Whether any node of one set equals any of the other depends on those alone. Serial numbers and the
//! string-values of whole machines are not among them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};

use super::local::Item;
use super::needs::Read;
use super::texts::Texts;
use crate::eval::Evaluated;
use crate::image::{DOCUMENT, ElementId, PairId};
use crate::xpath::ir::BoolExpr;

/// The values, and the bytes of the longest that could be one.
#[derive(Debug)]
pub struct Shared<'a> {
    values: HashSet<Cow<'a, str>>,
    longest: usize,
}

/// The values for the comparisons of an expression, by where these are in it.
#[derive(Debug, Clone, Default)]
pub struct AllShared<'a>(Rc<RefCell<HashMap<usize, Option<Rc<Shared<'a>>>>>>);

impl<'a> AllShared<'a> {
    /// What is known of a comparison.
    pub fn get(&self, comparison: &BoolExpr) -> Option<Rc<Shared<'a>>> {
        self.0.borrow().get(&(std::ptr::from_ref(comparison) as usize)).cloned().flatten()
    }

    /// Looks for the values that are read in both ways.
    pub fn find(
        &self,
        comparison: &BoolExpr,
        texts: &Texts<'a>,
        a: &[Read],
        b: &[Read],
    ) -> Evaluated<()> {
        let key = std::ptr::from_ref(comparison) as usize;
        if !self.0.borrow().contains_key(&key) {
            let found = Shared::of(texts, a, b)?.map(Rc::new);
            self.0.borrow_mut().insert(key, found);
        }
        Ok(())
    }
}

impl<'a> Shared<'a> {
    /// None where texts are read, of which there is no list.
    fn of(texts: &Texts<'a>, a: &[Read], b: &[Read]) -> Evaluated<Option<Self>> {
        let (Some(mut a), Some(mut b)) = (items(texts, a), items(texts, b)) else {
            return Ok(None);
        };
        texts.local.budget.spend(a.len() + b.len())?;
        let longest = longest(texts, &a)?.min(self::longest(texts, &b)?);
        if b.len() < a.len() {
            std::mem::swap(&mut a, &mut b);
        }
        let mut candidates = HashSet::new();
        for item in a {
            candidates.extend(short(texts, item, longest)?);
        }
        let mut values = HashSet::new();
        for item in b {
            if let Some(value) = short(texts, item, longest)?
                && candidates.contains(&value)
            {
                values.insert(value);
            }
        }
        Ok(Some(Shared { values, longest }))
    }

    /// The value of a node, if it is one of them.
    pub fn value(&self, texts: &Texts<'a>, item: Item) -> Evaluated<Option<Cow<'a, str>>> {
        Ok(short(texts, item, self.longest)?.filter(|value| self.values.contains(value)))
    }

    /// The bytes of the longest value that could be one of them.
    pub fn longest(&self) -> usize {
        self.longest
    }
}

/// What is read; none where that are texts.
fn items(texts: &Texts<'_>, reads: &[Read]) -> Option<Vec<Item>> {
    let (store, names) = (texts.local.store, texts.local.names);
    let mut items = Vec::new();
    for read in reads {
        match *read {
            Read::Document => {
                items.extend(store.elements_named(DOCUMENT).iter().copied().map(Item::Element));
            }
            Read::Element(name) => {
                let lists = names[name].ids().iter().map(|&id| store.elements_named(id));
                items.extend(lists.flatten().copied().map(Item::Element));
            }
            Read::AnyElement => {
                items.extend((0..store.elements().len() as ElementId).map(Item::Element));
            }
            Read::Attribute(name) => {
                let lists = names[name].ids().iter().map(|&id| store.pairs_named(id));
                items.extend(lists.flatten().copied().map(Item::Attribute));
            }
            Read::AnyAttribute => {
                items.extend((0..store.pair_count() as PairId).map(Item::Attribute));
            }
            Read::Text => return None,
        }
    }
    Some(items)
}

fn longest(texts: &Texts<'_>, items: &[Item]) -> Evaluated<usize> {
    items.iter().try_fold(0, |longest, &item| Ok(texts.bytes(item)?.max(longest)))
}

fn short<'a>(texts: &Texts<'a>, item: Item, longest: usize) -> Evaluated<Option<Cow<'a, str>>> {
    match texts.bytes(item)? <= longest {
        true => texts.value(item).map(Some),
        false => Ok(None),
    }
}
