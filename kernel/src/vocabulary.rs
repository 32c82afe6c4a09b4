//! What a partition's documents contain: names, where they stand, and their values.
//!
//! An element's place is its name and whether an element of the same name is around it. Rows that
//! stand at the same place in many documents are looked at once; a document is then a walk over
//! numbers. `expressions/vocabulary.py` of the project says what all of it means.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::image::{Child, DOCUMENT, ElementId, NameId, PartitionImage, Store};
use crate::intern::StrId;
use crate::xpath::number;

/// A value and the number of documents that have it.
pub type Counted = (String, u32);

/// The values of an attribute, or texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// The values of at most `max_length` characters.
    pub kept: Vec<Counted>,
    /// Whether there are longer values.
    pub has_long: bool,
    /// One is a number to XPath.
    pub has_number: bool,
    /// One is not.
    pub has_text: bool,
}

/// What is known of the elements of one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The expanded name, as `{uri}local` or `local`.
    pub name: String,
    /// Whether an element of the same name is around.
    pub nested: bool,
    /// How many documents have one.
    pub documents: u32,
    /// In how many it is the root.
    pub roots: u32,
    /// The numbers of the places of its child elements, ascending.
    pub children: Vec<u32>,
    /// By expanded name.
    pub attributes: Vec<(String, Values)>,
    /// The texts of elements without children.
    pub text: Values,
    /// Some have children: their text is not kept.
    pub opaque: bool,
}

/// The places of the documents in `slots` (a bitmap; `None`: all of them), and how many documents
/// these are.
pub fn collect(
    image: &PartitionImage,
    slots: Option<&[u8]>,
    max_length: usize,
) -> (u32, Vec<Place>) {
    let mut collector = Collector::new(image.store());
    for (slot, document) in image.slots() {
        let is_wanted = slots.is_none_or(|bitmap| {
            bitmap.get(slot as usize / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
        });
        if is_wanted {
            collector.add(document);
        }
    }
    collector.finish(max_length)
}

const NONE: u32 = u32::MAX;

type PlaceId = u32;
/// The set of names around an element, numbered.
type Around = u32;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Fact {
    Place(PlaceId),
    Root(PlaceId),
    Attribute(PlaceId, NameId, StrId),
    Text(PlaceId, StrId),
    /// A text of several pieces, by its number in `Collector::joined`.
    Joined(PlaceId, u32),
}

/// A row at a place: what it adds to a document that has it.
struct Entry {
    place: PlaceId,
    facts: Vec<u32>,
    children: Vec<u32>,
    /// The last document that was found to have it.
    seen: u32,
}

#[derive(Default)]
struct Spot {
    name: NameId,
    nested: bool,
    children: BTreeSet<PlaceId>,
    opaque: bool,
}

struct Collector<'s> {
    store: &'s Store,
    documents: u32,
    /// The first name of those that differ only in their prefix.
    plain: Vec<NameId>,
    spots: Vec<Spot>,
    spot_index: HashMap<(NameId, bool), PlaceId>,
    around: Vec<Vec<NameId>>,
    around_index: HashMap<Vec<NameId>, Around>,
    inside_index: HashMap<(Around, NameId), Around>,
    entries: Vec<Entry>,
    /// Where each row was seen first, which is where most rows are always seen: around what, and as what.
    first: Vec<(Around, u32)>,
    elsewhere: HashMap<(ElementId, Around), u32>,
    /// Each with the number of documents, and the last of them.
    facts: Vec<(Fact, u32, u32)>,
    fact_index: HashMap<Fact, u32>,
    joined: Vec<String>,
    joined_index: HashMap<String, u32>,
}

impl<'s> Collector<'s> {
    fn new(store: &'s Store) -> Self {
        let mut first = HashMap::new();
        let plain = store.names().iter().enumerate();
        let plain = plain
            .map(|(id, name)| *first.entry((name.uri, name.local)).or_insert(id as NameId))
            .collect();
        Collector {
            store,
            documents: 0,
            plain,
            spots: Vec::new(),
            spot_index: HashMap::new(),
            around: vec![Vec::new()],
            around_index: HashMap::from([(Vec::new(), 0)]),
            inside_index: HashMap::new(),
            entries: Vec::new(),
            first: vec![(0, NONE); store.elements().len()],
            elsewhere: HashMap::new(),
            facts: Vec::new(),
            fact_index: HashMap::new(),
            joined: Vec::new(),
            joined_index: HashMap::new(),
        }
    }

    fn add(&mut self, document: ElementId) {
        debug_assert_eq!(self.store.elements()[document as usize].name, DOCUMENT);
        let root = self.store.children(document).find_map(|child| match child {
            Child::Element(id) => Some(id),
            _ => None,
        });
        let Some(root) = root else { return };
        self.documents += 1;
        let entry = self.entry(root, 0);
        let place = self.entries[entry as usize].place;
        let fact = self.fact(Fact::Root(place));
        self.count(fact);
        let mut waiting = vec![entry];
        let Collector { entries, facts, documents, .. } = self;
        while let Some(at) = waiting.pop() {
            let entry = &mut entries[at as usize];
            if entry.seen == *documents {
                continue;
            }
            entry.seen = *documents;
            for &fact in &entry.facts {
                let (_, count, last) = &mut facts[fact as usize];
                if *last != *documents {
                    *last = *documents;
                    *count += 1;
                }
            }
            waiting.extend_from_slice(&entry.children);
        }
    }

    fn count(&mut self, fact: u32) {
        let (_, count, last) = &mut self.facts[fact as usize];
        if *last != self.documents {
            *last = self.documents;
            *count += 1;
        }
    }

    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn entry(&mut self, row: ElementId, around: Around) -> u32 {
        match self.first[row as usize] {
            (_, NONE) => {}
            (same, known) if same == around => return known,
            _ => {
                if let Some(&known) = self.elsewhere.get(&(row, around)) {
                    return known;
                }
            }
        }
        let name = self.plain_name(row);
        let place = self.place(name, around);
        let inside = self.inside(around, name);
        let mut facts = vec![self.fact(Fact::Place(place))];
        for &pair in self.store.attributes(row) {
            let (name, value) = self.store.pair(pair);
            facts.push(self.fact(Fact::Attribute(place, self.plain[name as usize], value)));
        }
        let mut children = Vec::new();
        let mut texts = Vec::new();
        let mut is_opaque = false;
        let mut last = NONE;
        for child in self.store.children(row) {
            match child {
                Child::Element(child) => {
                    is_opaque = true;
                    let entry = self.entry(child, inside);
                    let below = self.entries[entry as usize].place;
                    if below != last {
                        self.spots[place as usize].children.insert(below);
                        last = below;
                    }
                    children.push(entry);
                }
                Child::Text(text) => texts.push(text),
                Child::Comment(_) | Child::Instruction(_) => is_opaque = true,
            }
        }
        if is_opaque {
            self.spots[place as usize].opaque = true;
        } else {
            let fact = self.text(place, &texts);
            facts.push(self.fact(fact));
        }
        let id = self.entries.len() as u32;
        self.entries.push(Entry { place, facts, children, seen: 0 });
        match &mut self.first[row as usize] {
            first @ (_, NONE) => *first = (around, id),
            _ => {
                self.elsewhere.insert((row, around), id);
            }
        }
        id
    }

    fn text(&mut self, place: PlaceId, texts: &[StrId]) -> Fact {
        if let [text] = texts {
            return Fact::Text(place, *text);
        }
        let whole: String = texts.iter().map(|&text| self.store.strings().get(text)).collect();
        if let Some(text) = self.store.strings().find(&whole) {
            return Fact::Text(place, text);
        }
        let id = *self.joined_index.entry(whole.clone()).or_insert_with(|| {
            self.joined.push(whole);
            self.joined.len() as u32 - 1
        });
        Fact::Joined(place, id)
    }

    fn plain_name(&self, row: ElementId) -> NameId {
        self.plain[self.store.elements()[row as usize].name as usize]
    }

    fn place(&mut self, name: NameId, around: Around) -> PlaceId {
        let nested = self.around[around as usize].binary_search(&name).is_ok();
        *self.spot_index.entry((name, nested)).or_insert_with(|| {
            self.spots.push(Spot { name, nested, ..Spot::default() });
            self.spots.len() as PlaceId - 1
        })
    }

    fn inside(&mut self, around: Around, name: NameId) -> Around {
        if let Some(&known) = self.inside_index.get(&(around, name)) {
            return known;
        }
        let id = self.widened(around, name);
        self.inside_index.insert((around, name), id);
        id
    }

    fn widened(&mut self, around: Around, name: NameId) -> Around {
        let names = &self.around[around as usize];
        let Err(at) = names.binary_search(&name) else { return around };
        let mut names = names.clone();
        names.insert(at, name);
        *self.around_index.entry(names.clone()).or_insert_with(|| {
            self.around.push(names);
            self.around.len() as Around - 1
        })
    }

    fn fact(&mut self, fact: Fact) -> u32 {
        *self.fact_index.entry(fact).or_insert_with(|| {
            self.facts.push((fact, 0, 0));
            self.facts.len() as u32 - 1
        })
    }

    fn finish(self, max_length: usize) -> (u32, Vec<Place>) {
        let mut places: Vec<Place> = self
            .spots
            .iter()
            .map(|spot| Place {
                name: self.expanded(spot.name),
                nested: spot.nested,
                children: spot.children.iter().copied().collect(),
                opaque: spot.opaque,
                ..Place::default()
            })
            .collect();
        let mut attributes: HashMap<(PlaceId, NameId), Values> = HashMap::new();
        for &(fact, count, _) in &self.facts {
            let strings = self.store.strings();
            match fact {
                Fact::Place(place) => places[place as usize].documents = count,
                Fact::Root(place) => places[place as usize].roots = count,
                Fact::Attribute(place, name, value) => attributes
                    .entry((place, name))
                    .or_default()
                    .add(strings.get(value), count, max_length),
                Fact::Text(place, value) => {
                    places[place as usize].text.add(strings.get(value), count, max_length);
                }
                Fact::Joined(place, id) => {
                    let value = &self.joined[id as usize];
                    places[place as usize].text.add(value, count, max_length);
                }
            }
        }
        for ((place, name), values) in attributes {
            places[place as usize].attributes.push((self.expanded(name), values));
        }
        (self.documents, places)
    }

    fn expanded(&self, name: NameId) -> String {
        let name = self.store.names()[name as usize];
        let (uri, local) =
            (self.store.strings().get(name.uri), self.store.strings().get(name.local));
        if uri.is_empty() { local.to_owned() } else { format!("{{{uri}}}{local}") }
    }
}

impl Values {
    fn add(&mut self, value: &str, count: u32, max_length: usize) {
        if number::parse(value).is_nan() {
            self.has_text = true;
        } else {
            self.has_number = true;
        }
        if value.len() > max_length && value.chars().count() > max_length {
            self.has_long = true;
        } else {
            self.kept.push((value.to_owned(), count));
        }
    }
}
