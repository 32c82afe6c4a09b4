//! Where an image and its skeleton may answer differently: at values that were replaced, if an
//! expression reads them, or tests them otherwise than what replaced them.

use crate::error::BudgetExceeded;
use crate::eval::Evaluated;
use crate::image::{Child, DOCUMENT, ElementId, NameId, PairId, Skeleton};

use super::anchors::ValueTest;
use super::columns::{Columns, Common};
use super::local::Item;
use super::looks::{Look, Seen};
use super::needs::{Names, Needs, Read};
use super::texts::Texts;

/// Compares what an expression reads of an image and of its skeleton.
pub struct Agreement<'a, 't> {
    pub skeleton: &'a Skeleton,
    /// String-values in the image, and in the skeleton.
    pub image: &'t Texts<'a>,
    pub left: &'t Texts<'a>,
    /// The columns over the skeleton, which may have a skeleton, too.
    pub below: &'t Columns<'a>,
    /// With more differences than this the skeleton is of no use.
    pub limit: usize,
}

/// With more steps than this for each document, it is better to ask about all documents.
const MAX_STEPS: u64 = 2_000;

/// The elements at which both differ, as far as they have been found.
struct Found {
    elements: Vec<ElementId>,
    limit: usize,
    /// The steps that the budget keeps.
    kept: u64,
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
        let documents = self.image.local.store.elements_named(DOCUMENT).len() as u64;
        let kept = self.image.local.budget.left().saturating_sub(documents * MAX_STEPS);
        let mut found = Found { elements: Vec::new(), limit: self.limit, kept };
        match self.search(needs, &mut found) {
            Ok(()) => Ok(Some(found.elements)),
            Err(Ended::TooMany) => Ok(None),
            Err(Ended::Budget) => Err(BudgetExceeded),
        }
    }

    fn search(&self, needs: &Needs<'a>, found: &mut Found) -> Searched {
        for (comparison, a, b) in &needs.compared {
            self.image.shared.find(comparison, self.image, a, b)?;
        }
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
        needs.looks.iter().try_for_each(|(read, look)| self.compare(*read, Some(look), found))
    }

    /// Adds the elements at which what is read differs, or what is seen of it.
    fn compare(&self, read: Read, look: Option<&Look<'a>>, found: &mut Found) -> Searched {
        let names = &self.image.local.names;
        let mut all = 0..self.image.local.store.names().len() as NameId;
        match (read, look) {
            (Read::Element(name), _) => {
                names[name].ids().iter().try_for_each(|&id| self.elements_named(id, found, look))
            }
            (Read::Document, _) => self.elements_named(DOCUMENT, found, look),
            (Read::AnyElement, _) => {
                self.image.local.budget.spend(self.image.local.store.elements().len() / 64)?;
                self.elements(self.skeleton.changed(), found, look)
            }
            (Read::Attribute(name), _) => {
                names[name].ids().iter().try_for_each(|&id| self.attributes_named(id, found, look))
            }
            (Read::AnyAttribute, _) => {
                all.try_for_each(|id| self.attributes_named(id, found, look))
            }
            (Read::Text, Some(look)) => self.texts(found, look),
            (Read::Text, None) => found.add(self.skeleton.replaced()),
        }
    }

    fn elements_named(&self, name: NameId, found: &mut Found, look: Option<&Look<'a>>) -> Searched {
        let named = self.image.local.store.elements_named(name);
        self.image.local.budget.spend(1 + named.len() / 16)?;
        let changed = named.iter().copied().filter(|&id| self.skeleton.is_changed(id));
        self.elements(changed, found, look)
    }

    /// Adds those of some elements at which a look sees something else.
    fn elements(
        &self,
        changed: impl Iterator<Item = ElementId>,
        found: &mut Found,
        look: Option<&Look<'a>>,
    ) -> Searched {
        let Some(look) = look else {
            return changed.into_iter().try_for_each(|id| found.add(&[id]));
        };
        let mut sight = Sight::new(self.below);
        for id in changed {
            self.image.local.budget.spend(1)?;
            if self.image.local.budget.left() < found.kept {
                return Err(Ended::TooMany);
            }
            let seen = sight.of(look, self.skeleton.row(id))?;
            let is_alike = self.skeleton.alike(id) > seen.bytes;
            if !is_alike && look.see(self.image, Item::Element(id))?.outcome != seen.outcome {
                found.add(&[id])?;
            }
        }
        Ok(())
    }

    fn attributes_named(
        &self,
        name: NameId,
        found: &mut Found,
        look: Option<&Look<'a>>,
    ) -> Searched {
        let store = self.image.local.store;
        let replaced = self.skeleton.replaced_pairs(name);
        self.image.local.budget.spend(1)?;
        let Some(stand_in) = self.skeleton.stand_in(name).filter(|_| !replaced.is_empty()) else {
            return Ok(());
        };
        if let Some(Look::Test(ValueTest::Equals(wanted) | ValueTest::Differs(wanted))) = look {
            // Only the value that is wanted differs from all others.
            let value = store.strings().find(wanted);
            let pair = value.and_then(|value| store.find_pair(name, value));
            if pair != Some(stand_in) {
                let replaced = pair.filter(|&pair| self.is_replaced(pair, stand_in));
                return replaced.map_or(Ok(()), |pair| found.add(store.elements_bearing(pair)));
            }
        }
        let now = look.map(|look| look.see(self.image, Item::Attribute(stand_in))).transpose()?;
        for &pair in replaced {
            self.image.local.budget.spend(1)?;
            let is_same = match (look, &now) {
                (Some(look), Some(now)) => {
                    look.see(self.image, Item::Attribute(pair))?.outcome == now.outcome
                }
                _ => false,
            };
            if !is_same {
                found.add(store.elements_bearing(pair))?;
            }
        }
        Ok(())
    }

    fn is_replaced(&self, pair: PairId, stand_in: PairId) -> bool {
        self.skeleton.pair(pair) == self.skeleton.pair(stand_in)
    }

    fn texts(&self, found: &mut Found, look: &Look<'a>) -> Searched {
        let (image, left) = (self.image.local.store, self.left.local.store);
        for &id in self.skeleton.replaced() {
            let row = self.skeleton.row(id);
            for pair in image.children(id).zip(left.children(row)) {
                self.image.local.budget.spend(1)?;
                let (Child::Text(before), Child::Text(now)) = pair else { continue };
                if image.strings().get(before) == left.strings().get(now) {
                    continue;
                }
                let before = look.see(self.image, Item::Text(before))?;
                if before.outcome != look.see(self.left, Item::Text(now))?.outcome {
                    found.add(&[id])?;
                }
            }
        }
        Ok(())
    }
}

/// What is seen of the rows of a skeleton, as far as it has been looked at. Where the beginning decides, and
/// that is as in the skeleton's own skeleton, it is looked at there, once for many.
struct Sight<'a, 't> {
    columns: &'t Columns<'a>,
    /// One above the place of what was seen of each row.
    places: Vec<u32>,
    seen: Vec<Seen<'a>>,
    below: Option<Box<Sight<'a, 't>>>,
}

impl<'a, 't> Sight<'a, 't> {
    fn new(columns: &'t Columns<'a>) -> Self {
        Sight { columns, places: Vec::new(), seen: Vec::new(), below: None }
    }

    fn of(&mut self, look: &Look<'a>, id: ElementId) -> Evaluated<&Seen<'a>> {
        if self.places.is_empty() {
            let size = self.columns.local.store.elements().len();
            self.columns.local.budget.spend(size / 64)?;
            self.places = vec![0; size];
        }
        if self.places[id as usize] == 0 {
            let seen = self.look(look, id)?;
            self.columns.local.budget.spend(1)?;
            self.seen.push(seen);
            self.places[id as usize] = self.seen.len() as u32;
        }
        Ok(&self.seen[self.places[id as usize] as usize - 1])
    }

    fn look(&mut self, look: &Look<'a>, id: ElementId) -> Evaluated<Seen<'a>> {
        if let Some(Common { skeleton, columns }) = &self.columns.common {
            let below = self.below.get_or_insert_with(|| Box::new(Sight::new(columns)));
            let seen = below.of(look, skeleton.row(id))?;
            if !skeleton.is_changed(id) || skeleton.alike(id) > seen.bytes {
                return Ok(seen.clone());
            }
        }
        look.see(&self.columns.texts, Item::Element(id))
    }
}
