//! Documents without what an expression cannot tell apart.
//!
//! A fleet has few kinds of machines. Without their serial numbers most documents of a kind are
//! equal, and the expression is asked once for all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::budget::Budget;
use crate::eval::Evaluated;
use crate::image::{Child, ElementId, NameId, PairId, Store};
use crate::tree::Keep;
use crate::xpath::bound::BoundName;

use super::anchors::ValueTest;
use super::local::{Item, Local};
use super::looks::Look;
use super::needs::{Names, Needs, Read};
use super::reach::Reached;

const UNKNOWN: u32 = u32::MAX;
/// Between the attributes and the children of a signature; no class has this number.
const CHILDREN: u32 = u32::MAX;
/// Outcomes of more tests than this are not told apart: the value itself is.
const MAX_TESTS: usize = 31;

/// What is read of the values that a name has.
#[derive(Debug, Clone)]
enum Reading<'a> {
    /// The value itself, or outcomes of too many tests.
    Exactly,
    /// Which of the tests it passes.
    Tests(Vec<ValueTest<'a>>),
}

/// What one expression needs of one store.
pub struct Projection<'a> {
    local: Local<'a>,
    /// None: every element.
    elements: Option<Reached>,
    /// Whether attributes of a name matter, by the number of the name.
    attributes: Vec<bool>,
    element_readings: Vec<Reading<'a>>,
    attribute_readings: Vec<Reading<'a>>,
    texts: bool,
    others: bool,
}

impl<'a> Projection<'a> {
    /// None where finding what is needed would cost more than `limit` steps.
    pub fn new(
        needs: &Needs<'a>,
        local: Local<'a>,
        documents: &[ElementId],
        limit: usize,
    ) -> Evaluated<Option<Self>> {
        let Local { store, names, budget } = local;
        let elements = match &needs.elements {
            Names::All if store.elements().len() > limit => return Ok(None),
            Names::All => None,
            Names::Some(wanted) => {
                match reached(wanted, needs, store, names, documents, limit, budget)? {
                    Some(reached) => Some(reached),
                    None => return Ok(None),
                }
            }
        };
        budget.spend(store.names().len())?;
        let values = match needs.look_at(Read::AnyElement) || needs.look_at(Read::Document) {
            true => &Names::All,
            false => &needs.values,
        };
        let attribute_values = match needs.language || needs.look_at(Read::AnyAttribute) {
            true => &Names::All,
            false => &needs.attribute_values,
        };
        let element = |name| Read::Element(name);
        let attribute = |name| Read::Attribute(name);
        Ok(Some(Projection {
            local,
            elements,
            attributes: marked(&needs.attributes, store, names),
            element_readings: readings(values, needs, element, store, names),
            attribute_readings: readings(attribute_values, needs, attribute, store, names),
            texts: needs.texts,
            others: needs.others,
        }))
    }

    /// Asks about one of all documents that are equal in what matters, and answers for each.
    pub fn each<T: Clone>(
        &self,
        documents: &[ElementId],
        mut ask: impl FnMut(ElementId) -> Evaluated<T>,
    ) -> Evaluated<Vec<T>> {
        let mut classes = Classes::new(self);
        let mut known: HashMap<u32, T> = HashMap::new();
        let mut answers = Vec::with_capacity(documents.len());
        for &document in documents {
            let answer = match known.entry(classes.of(document)?) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => place.insert(ask(document)?).clone(),
            };
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Keep for Projection<'_> {
    #[inline]
    fn element(&self, id: ElementId) -> bool {
        self.elements.as_ref().is_none_or(|reached| reached.contains(id))
    }

    #[inline]
    fn attribute(&self, name: NameId) -> bool {
        self.attributes[name as usize]
    }

    fn texts(&self) -> bool {
        self.texts
    }

    fn others(&self) -> bool {
        self.others
    }
}

/// The elements that matter, with all their ancestors, and every root.
fn reached(
    wanted: &[usize],
    needs: &Needs<'_>,
    store: &Store,
    names: &[BoundName],
    documents: &[ElementId],
    limit: usize,
    budget: &Budget,
) -> Evaluated<Option<Reached>> {
    let ids = |name: &usize| names[*name].ids().iter().copied();
    let named = wanted.iter().flat_map(ids).map(|name| store.elements_named(name));
    let pairs = needs.bearers.iter().flat_map(ids).flat_map(|name| store.pairs_named(name));
    let bearing = pairs.map(|&pair| store.elements_bearing(pair));
    let mut hits = Vec::new();
    for list in named.chain(bearing) {
        budget.spend(1 + list.len())?;
        hits.extend_from_slice(list);
        if hits.len() > limit {
            return Ok(None);
        }
    }
    for &document in documents {
        budget.spend(store.width(document))?;
        hits.extend(store.children(document).filter_map(|child| match child {
            Child::Element(root) => Some(root),
            _ => None,
        }));
    }
    Reached::from(store, &hits, budget).map(Some)
}

fn marked(wanted: &Names, store: &Store, names: &[BoundName]) -> Vec<bool> {
    let Names::Some(wanted) = wanted else { return vec![true; store.names().len()] };
    let mut marks = vec![false; store.names().len()];
    for name in wanted.iter().flat_map(|&name| names[name].ids()) {
        marks[*name as usize] = true;
    }
    marks
}

/// What is read of the values of each name of the store.
fn readings<'a>(
    exactly: &Names,
    needs: &Needs<'a>,
    read: impl Fn(usize) -> Read,
    store: &Store,
    names: &[BoundName],
) -> Vec<Reading<'a>> {
    let exact = marked(exactly, store, names);
    let reading = |is_exact| match is_exact {
        true => Reading::Exactly,
        false => Reading::Tests(Vec::new()),
    };
    let mut readings: Vec<Reading<'a>> = exact.into_iter().map(reading).collect();
    for (name, bound) in names.iter().enumerate() {
        let looks = needs.looks.iter().filter(|(of, _)| *of == read(name));
        for look in looks.map(|(_, look)| look) {
            for &id in bound.ids() {
                let reading = &mut readings[id as usize];
                match (&mut *reading, look) {
                    (Reading::Tests(known), Look::Test(test)) if known.len() < MAX_TESTS => {
                        known.push(*test);
                    }
                    _ => *reading = Reading::Exactly,
                }
            }
        }
    }
    readings
}

/// Numbers for elements: equal ones for those that are equal in what matters.
struct Classes<'a, 'p> {
    projection: &'p Projection<'a>,
    of: Vec<u32>,
    /// The outcomes for each attribute whose value is only tested.
    outcomes: Vec<u32>,
    /// Signatures that are not complete yet, each after the one of its parent.
    pending: Vec<u32>,
    /// The signature of each class, one after the other; and where each begins.
    signatures: Vec<u32>,
    starts: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<'a, 'p> Classes<'a, 'p> {
    fn new(projection: &'p Projection<'a>) -> Self {
        Classes {
            projection,
            of: vec![UNKNOWN; projection.local.store.elements().len()],
            outcomes: Vec::new(),
            pending: Vec::new(),
            signatures: Vec::new(),
            starts: vec![0],
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn of(&mut self, id: ElementId) -> Evaluated<u32> {
        if self.of[id as usize] != UNKNOWN {
            return Ok(self.of[id as usize]);
        }
        let &Projection { local, texts, others, .. } = self.projection;
        local.budget.spend(local.store.width(id))?;
        let begin = self.pending.len();
        let name = local.store.elements()[id as usize].name;
        let outcome = match &self.projection.element_readings[name as usize] {
            Reading::Exactly => id,
            Reading::Tests(tests) if tests.is_empty() => 0,
            Reading::Tests(tests) => outcomes(tests, &local.value(Item::Element(id))?),
        };
        self.pending.extend([name, outcome]);
        for &pair in local.store.attributes(id) {
            let name = local.store.pair(pair).0;
            if self.projection.attribute(name) {
                let outcome = self.attribute_outcome(name, pair)?;
                self.pending.extend([name, outcome]);
            }
        }
        self.pending.push(CHILDREN);
        for child in local.store.children(id) {
            let code = match child {
                Child::Element(child) if self.projection.element(child) => self.of(child)? << 2,
                Child::Text(text) if texts => text << 2 | 1,
                Child::Comment(text) if others => text << 2 | 2,
                Child::Instruction(pair) if others => pair << 2 | 3,
                _ => continue,
            };
            self.pending.push(code);
        }
        let class = self.class(begin);
        self.of[id as usize] = class;
        Ok(class)
    }

    fn attribute_outcome(&mut self, name: NameId, pair: PairId) -> Evaluated<u32> {
        let Reading::Tests(tests) = &self.projection.attribute_readings[name as usize] else {
            return Ok(pair);
        };
        if tests.is_empty() {
            return Ok(0);
        }
        let Local { store, budget, .. } = self.projection.local;
        if self.outcomes.is_empty() {
            budget.spend(store.pair_count() / 16)?;
            self.outcomes = vec![UNKNOWN; store.pair_count()];
        }
        let known = &mut self.outcomes[pair as usize];
        if *known == UNKNOWN {
            let value = store.strings().get(store.pair(pair).1);
            budget.read(value)?;
            *known = outcomes(tests, value);
        }
        Ok(*known)
    }

    /// The class of the pending signature that begins there, which is taken off.
    fn class(&mut self, begin: usize) -> u32 {
        let Classes { signatures, starts, index, hasher, pending, .. } = self;
        let signature = &pending[begin..];
        let hash = hasher.hash_one(signature);
        let at = |class: u32| starts[class as usize] as usize..starts[class as usize + 1] as usize;
        let class = match index.find(hash, |&class| signatures[at(class)] == *signature) {
            Some(&class) => class,
            None => {
                let class = starts.len() as u32 - 1;
                signatures.extend_from_slice(signature);
                starts.push(signatures.len() as u32);
                let at = |class: u32| {
                    starts[class as usize] as usize..starts[class as usize + 1] as usize
                };
                index.insert_unique(hash, class, |&other| hasher.hash_one(&signatures[at(other)]));
                class
            }
        };
        pending.truncate(begin);
        class
    }
}

/// Bit n: whether the value passes test n.
fn outcomes(tests: &[ValueTest<'_>], value: &str) -> u32 {
    tests.iter().enumerate().fold(0, |bits, (n, test)| bits | u32::from(test.holds(value)) << n)
}
