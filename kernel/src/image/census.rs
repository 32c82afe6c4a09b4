//! Which values of documents set them apart, though they have the same structure.

use std::cmp::Reverse;

use hashbrown::HashSet;

use super::store::{Child, ElementId, NameId, PairId, Store};
use crate::intern::StrId;

/// Places that are looked at, at most: the ones with most values.
const MAX_PLACES: usize = 16;

/// Where values stand: in attributes of a name, or in elements of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Attribute(NameId),
    Element(NameId),
}

/// Which values are replaced.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// A value is replaced only if one document of so many has it, or fewer do.
    rare: Option<usize>,
    /// Values of a place are replaced if by them documents of one structure become so many percent as many.
    percent: usize,
}

impl Rule {
    /// What few documents have: serial numbers, names of hosts.
    pub const FEW_HAVE: Rule = Rule { rare: Some(256), percent: 110 };
    /// What does not follow from the structure of a document: versions, dates, sizes.
    pub const STRUCTURE_LEAVES_OPEN: Rule = Rule { rare: None, percent: 103 };
}

/// What documents have how often.
pub struct Census {
    elements: Vec<u32>,
    pairs: Vec<u32>,
    texts: Vec<u32>,
    /// Values that occur more often are not replaced.
    limit: u32,
    /// Whether values of attributes of a name are replaced, and texts of elements of one.
    attributes_named: Vec<bool>,
    elements_named: Vec<bool>,
}

impl Census {
    pub fn of(rule: Rule, store: &Store, documents: &[ElementId]) -> Self {
        let mut census = Census {
            elements: vec![0; store.elements().len()],
            pairs: vec![0; store.pair_count()],
            texts: vec![0; store.strings().len()],
            limit: rule.rare.map_or(u32::MAX, |rare| documents.len().div_ceil(rare) as u32),
            attributes_named: vec![false; store.names().len()],
            elements_named: vec![false; store.names().len()],
        };
        census.count(store, documents);
        census.choose(rule, store, documents);
        census
    }

    fn count(&mut self, store: &Store, documents: &[ElementId]) {
        documents.iter().for_each(|&id| self.elements[id as usize] += 1);
        // Whatever contains an element comes after it.
        for id in (0..store.elements().len() as ElementId).rev() {
            let own = self.elements[id as usize];
            if own == 0 {
                continue;
            }
            let add = |count: &mut u32| *count = count.saturating_add(own);
            store.attributes(id).iter().for_each(|&pair| add(&mut self.pairs[pair as usize]));
            for child in store.children(id) {
                match child {
                    Child::Element(child) => add(&mut self.elements[child as usize]),
                    Child::Text(text) => add(&mut self.texts[text as usize]),
                    _ => {}
                }
            }
        }
    }

    /// How many rows documents have.
    pub fn living(&self) -> usize {
        self.elements.iter().filter(|&&count| count > 0).count()
    }

    pub fn is_living(&self, id: ElementId) -> bool {
        self.elements[id as usize] > 0
    }

    /// Whether a child of an element of a name is a text that is replaced.
    pub fn is_replaced_text(&self, name: NameId, child: Child) -> bool {
        matches!(child, Child::Text(text) if self.elements_named[name as usize] && self.is_few(text))
    }

    /// Whether an attribute of a name is replaced.
    pub fn is_replaced(&self, name: NameId, pair: PairId) -> bool {
        self.attributes_named[name as usize] && self.pairs[pair as usize] <= self.limit
    }

    fn is_few(&self, text: StrId) -> bool {
        self.texts[text as usize] <= self.limit
    }

    /// Chooses the places whose values tell documents of one structure apart.
    fn choose(&mut self, rule: Rule, store: &Store, documents: &[ElementId]) {
        let places = self.places(store);
        let width = places.len() + 1;
        let signs = self.signs(store, &places);
        let of = |id: ElementId| &signs[id as usize * width..][..width];
        let structures = documents.iter().map(|&id| of(id)[0]).collect::<HashSet<_>>().len();
        for (index, place) in places.into_iter().enumerate() {
            let apart = documents.iter().map(|&id| (of(id)[0], of(id)[index + 1]));
            let apart = apart.collect::<HashSet<_>>().len();
            let chosen = apart * 100 >= structures * rule.percent;
            match place {
                Place::Element(name) => self.elements_named[name as usize] = chosen,
                Place::Attribute(name) => self.attributes_named[name as usize] = chosen,
            }
        }
    }

    /// The places with most values that might be replaced.
    fn places(&self, store: &Store) -> Vec<Place> {
        let mut attributes = vec![0_usize; store.names().len()];
        for (pair, &count) in self.pairs.iter().enumerate() {
            let name = store.pair(pair as PairId).0;
            // lang() reads an attribute that expressions do not name.
            if count > 0 && count <= self.limit && !store.is_language(name) {
                attributes[name as usize] += 1;
            }
        }
        let mut elements = vec![0_usize; store.names().len()];
        for id in (0..store.elements().len() as ElementId).filter(|&id| self.is_living(id)) {
            // The texts between elements are white space.
            if let Some(Child::Text(text)) = store.children(id).next()
                && self.is_few(text)
                && store.children(id).len() == 1
            {
                elements[store.elements()[id as usize].name as usize] += 1;
            }
        }
        let named = |(name, count)| (name as NameId, count);
        let attributes = attributes.into_iter().enumerate().map(named);
        let elements = elements.into_iter().enumerate().map(named);
        let mut places: Vec<_> = attributes
            .map(|(name, count)| (count, Place::Attribute(name)))
            .chain(elements.map(|(name, count)| (count, Place::Element(name))))
            .filter(|&(count, _)| count > 1)
            .collect();
        places.sort_unstable_by_key(|&(count, place)| (Reverse(count), place));
        places.truncate(MAX_PLACES);
        places.into_iter().map(|(_, place)| place).collect()
    }

    /// For each row: a number for the structure of its subtree, and one for the values of each place in it.
    fn signs(&self, store: &Store, places: &[Place]) -> Vec<u64> {
        let width = places.len() + 1;
        let mut elements = vec![0; store.names().len()];
        let mut attributes = vec![0; store.names().len()];
        for (index, &place) in places.iter().enumerate() {
            match place {
                Place::Element(name) => elements[name as usize] = index + 1,
                Place::Attribute(name) => attributes[name as usize] = index + 1,
            }
        }
        let mut signs = vec![0_u64; store.elements().len() * width];
        for id in (0..store.elements().len() as ElementId).filter(|&id| self.is_living(id)) {
            let (below, own) = signs.split_at_mut(id as usize * width);
            let name = store.elements()[id as usize].name;
            own[0] = u64::from(name) + 1;
            for &pair in store.attributes(id) {
                let place = attributes[store.pair(pair).0 as usize];
                if place > 0 && self.pairs[pair as usize] <= self.limit {
                    own[place] = own[place].wrapping_add(mixed(u64::from(pair), 1));
                }
            }
            let place = elements[name as usize];
            for child in store.children(id) {
                match child {
                    Child::Element(child) => {
                        let of_child = &below[child as usize * width..][..width];
                        own[0] = mixed(own[0], of_child[0]);
                        for (own, of_child) in own[1..width].iter_mut().zip(&of_child[1..]) {
                            *own = own.wrapping_add(*of_child);
                        }
                    }
                    Child::Text(text) if place > 0 && self.is_few(text) => {
                        own[place] = own[place].wrapping_add(mixed(u64::from(text), 2));
                    }
                    _ => {}
                }
            }
        }
        signs
    }
}

/// Two numbers as one, in this order.
fn mixed(a: u64, b: u64) -> u64 {
    let factors = (a ^ 0x9e37_79b9_7f4a_7c15, b.rotate_left(32) ^ 0xd6e8_feb8_6659_fd93);
    let product = u128::from(factors.0) * u128::from(factors.1);
    product as u64 ^ (product >> 64) as u64
}
