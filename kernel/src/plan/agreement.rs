//! Where an image and its skeleton may answer differently: at values that were replaced, if an
//! expression reads them, or tests them otherwise than what replaced them.

use crate::error::BudgetExceeded;
use crate::eval::Evaluated;
use crate::image::{Child, ElementId, NameId, PairId, Skeleton};

use super::anchors::ValueTest;
use super::local::Item;
use super::needs::{Names, Needs, Read};
use super::texts::Texts;

/// Compares what an expression reads of an image and of its skeleton.
pub struct Agreement<'a, 't> {
    pub skeleton: &'a Skeleton,
    /// String-values in the image, and in the skeleton.
    pub image: &'t Texts<'a>,
    pub left: &'t Texts<'a>,
    /// With more differences than this the skeleton is of no use.
    pub limit: usize,
}

/// The elements at which both differ, as far as they have been found.
struct Found {
    elements: Vec<ElementId>,
    limit: usize,
}

/// Why a search ends early.
enum Ended {
    TooMany,
    Budget,
}

impl From<BudgetExceeded> for Ended {
    fn from(_: BudgetExceeded) -> Self {
        Ended::Budget
    }
}

type Searched = Result<(), Ended>;

impl Found {
    fn add(&mut self, elements: &[ElementId]) -> Searched {
        if self.elements.len() + elements.len() > self.limit {
            return Err(Ended::TooMany);
        }
        self.elements.extend_from_slice(elements);
        Ok(())
    }
}

impl<'a> Agreement<'a, '_> {
    /// The elements whose documents are to be asked about in the image. None where they are too many.
    pub fn differences(&self, needs: &Needs<'a>) -> Evaluated<Option<Vec<ElementId>>> {
        let mut found = Found { elements: Vec::new(), limit: self.limit };
        match self.search(needs, &mut found) {
            Ok(()) => Ok(Some(found.elements)),
            Err(Ended::TooMany) => Ok(None),
            Err(Ended::Budget) => Err(BudgetExceeded),
        }
    }

    fn search(&self, needs: &Needs<'a>, found: &mut Found) -> Searched {
        if needs.text_values {
            self.compare(Read::Text, None, found)?;
        }
        let whole = |names: &Names, any: Read, one: fn(usize) -> Read| match names {
            Names::All => vec![any],
            Names::Some(names) => names.iter().map(|&name| one(name)).collect(),
        };
        let elements = whole(&needs.values, Read::AnyElement, Read::Element);
        let attributes = whole(&needs.attribute_values, Read::AnyAttribute, Read::Attribute);
        for read in elements.into_iter().chain(attributes) {
            self.compare(read, None, found)?;
        }
        needs.tests.iter().try_for_each(|(read, test)| self.compare(*read, Some(test), found))
    }

    /// Adds the elements at which what is read differs, or what a test says of it.
    fn compare(&self, read: Read, test: Option<&ValueTest<'a>>, found: &mut Found) -> Searched {
        let names = &self.image.local.names;
        let mut all = 0..self.image.local.store.names().len() as NameId;
        match (read, test) {
            (Read::Element(name), _) => {
                names[name].ids().iter().try_for_each(|&id| self.elements_named(id, found, test))
            }
            (Read::AnyElement, _) => all.try_for_each(|id| self.elements_named(id, found, test)),
            (Read::Attribute(name), _) => {
                names[name].ids().iter().try_for_each(|&id| self.attributes_named(id, found, test))
            }
            (Read::AnyAttribute, _) => {
                all.try_for_each(|id| self.attributes_named(id, found, test))
            }
            (Read::Text, Some(test)) => self.texts(found, test),
            (Read::Text, None) => found.add(self.skeleton.replaced()),
        }
    }

    fn elements_named(
        &self,
        name: NameId,
        found: &mut Found,
        test: Option<&ValueTest<'a>>,
    ) -> Searched {
        let store = self.image.local.store;
        let named = store.elements_named(name);
        self.image.local.budget.spend(1 + named.len() / 16)?;
        // What the rows of the skeleton answered: 0 is unknown.
        let mut known = Vec::new();
        for &id in named.iter().filter(|&&id| self.skeleton.is_changed(id)) {
            let Some(test) = test else {
                found.add(&[id])?;
                continue;
            };
            self.image.local.budget.spend(1)?;
            let row = self.skeleton.row(id);
            if known.is_empty() {
                known = vec![0_u8; self.skeleton.store().elements().len()];
            }
            if known[row as usize] == 0 {
                known[row as usize] = 1 + u8::from(self.left.passes(Item::Element(row), test)?);
            }
            if u8::from(self.image.passes(Item::Element(id), test)?) + 1 != known[row as usize] {
                found.add(&[id])?;
            }
        }
        Ok(())
    }

    fn attributes_named(
        &self,
        name: NameId,
        found: &mut Found,
        test: Option<&ValueTest<'a>>,
    ) -> Searched {
        let store = self.image.local.store;
        for &pair in store.pairs_named(name) {
            self.image.local.budget.spend(1)?;
            if self.differs(pair, test)? {
                found.add(store.elements_bearing(pair))?;
            }
        }
        Ok(())
    }

    /// Whether an attribute's value is another, or one that a test tells from it.
    fn differs(&self, pair: PairId, test: Option<&ValueTest<'a>>) -> Evaluated<bool> {
        let (image, left) = (self.image.local.store, self.left.local.store);
        let now = self.skeleton.pair(pair);
        // What no document has was not copied.
        if now == PairId::MAX {
            return Ok(false);
        }
        let (before, now) =
            (image.strings().get(image.pair(pair).1), left.strings().get(left.pair(now).1));
        if before == now {
            return Ok(false);
        }
        let Some(test) = test else { return Ok(true) };
        self.image.local.budget.read(before)?;
        self.image.local.budget.read(now)?;
        Ok(test.holds(before) != test.holds(now))
    }

    fn texts(&self, found: &mut Found, test: &ValueTest<'a>) -> Searched {
        let (image, left) = (self.image.local.store, self.left.local.store);
        for &id in self.skeleton.replaced() {
            let row = self.skeleton.row(id);
            for pair in image.children(id).zip(left.children(row)) {
                self.image.local.budget.spend(1)?;
                let (Child::Text(before), Child::Text(now)) = pair else { continue };
                let (before, now) = (image.strings().get(before), left.strings().get(now));
                self.image.local.budget.spend((before.len() + now.len()) / 16)?;
                if before != now && test.holds(before) != test.holds(now) {
                    found.add(&[id])?;
                }
            }
        }
        Ok(())
    }
}
