//! Distinct names, attributes and subtrees, and the indexes over them.
//!
//! An element row names its edges: first its attributes (pair numbers), then its children
//! ([`Child`], packed). Children are interned before their parent, so a child's number is always
//! smaller: one ascending pass over the rows sees every subtree before what contains it.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::ImageError;
use crate::intern::{StrId, Strings};

/// The number of an element row.
pub type ElementId = u32;
/// The number of a [`Name`].
pub type NameId = u32;
/// The number of an attribute, or of a processing instruction: a name and a value.
pub type PairId = u32;

/// The name of the row that stands for a document: its children are the root and what surrounds it.
pub const DOCUMENT: NameId = 0;
const NONE: u32 = u32::MAX;
/// Two bits of a packed child say what it is.
const MAX_ID: u32 = u32::MAX >> 2;

/// An expanded name and the prefix it was written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    /// The namespace name.
    pub uri: StrId,
    /// The prefix.
    pub prefix: StrId,
    /// The local part.
    pub local: StrId,
}

/// A child of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// An element.
    Element(ElementId),
    /// A text.
    Text(StrId),
    /// A comment.
    Comment(StrId),
    /// A processing instruction: target and data.
    Instruction(PairId),
}

impl Child {
    #[inline]
    pub(super) fn pack(self) -> u32 {
        match self {
            Child::Element(id) => id << 2,
            Child::Text(id) => id << 2 | 1,
            Child::Comment(id) => id << 2 | 2,
            Child::Instruction(id) => id << 2 | 3,
        }
    }

    #[inline]
    pub(super) fn unpack(packed: u32) -> Self {
        let id = packed >> 2;
        match packed & 3 {
            0 => Child::Element(id),
            1 => Child::Text(id),
            2 => Child::Comment(id),
            _ => Child::Instruction(id),
        }
    }
}

/// An element row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: NameId,
    pub(super) start: u32,
    pub(super) attributes: u32,
}

/// The rows of a partition.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) strings: Strings,
    pub(super) names: Vec<Name>,
    pub(super) pairs: Vec<(NameId, StrId)>,
    pub(super) elements: Vec<Element>,
    pub(super) edges: Vec<u32>,
    name_index: HashTable<NameId>,
    pair_index: HashTable<PairId>,
    element_index: HashTable<ElementId>,
    hasher: DefaultHashBuilder,
    /// Elements of each name, ascending.
    by_name: Vec<Vec<ElementId>>,
    /// Elements that bear each attribute, ascending.
    by_pair: Vec<Vec<ElementId>>,
    /// Attributes of each name.
    pairs_by_name: Vec<Vec<PairId>>,
    /// The head of each element's list in `parent_links`: (parent, next).
    parent_heads: Vec<u32>,
    parent_links: Vec<(ElementId, u32)>,
}

impl Default for Store {
    fn default() -> Self {
        let mut store = Self::empty(Strings::default());
        store.add_name(Name { uri: 0, prefix: 0, local: 0 });
        store
    }
}

impl Store {
    pub(super) fn empty(strings: Strings) -> Self {
        Store {
            strings,
            names: Vec::new(),
            pairs: Vec::new(),
            elements: Vec::new(),
            edges: Vec::new(),
            name_index: HashTable::new(),
            pair_index: HashTable::new(),
            element_index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            by_name: Vec::new(),
            by_pair: Vec::new(),
            pairs_by_name: Vec::new(),
            parent_heads: Vec::new(),
            parent_links: Vec::new(),
        }
    }

    /// Makes room for so many rows that are about to be added: tables that grow hash all they have
    /// again.
    pub(super) fn reserve(&mut self, names: usize, pairs: usize, elements: usize) {
        let Store { hasher, .. } = self;
        let hasher = hasher.clone();
        self.name_index.reserve(names, |&id| hasher.hash_one(self.names[id as usize]));
        self.pair_index.reserve(pairs, |&id| hasher.hash_one(self.pairs[id as usize]));
        // It is empty until all elements are there.
        debug_assert!(self.element_index.is_empty());
        self.element_index = HashTable::with_capacity(elements);
        self.names.reserve(names);
        self.pairs.reserve(pairs);
        self.by_pair.reserve(pairs);
        self.parent_heads.reserve(elements);
        self.parent_links.reserve(elements);
    }

    /// The strings: parts of names, values of attributes, texts.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// All names. Number 0 is [`DOCUMENT`].
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Name and value of an attribute or instruction.
    #[inline]
    pub fn pair(&self, id: PairId) -> (NameId, StrId) {
        self.pairs[id as usize]
    }

    /// How many attributes and instructions there are.
    pub fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// All rows.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// The attributes of an element in document order.
    #[inline]
    pub fn attributes(&self, id: ElementId) -> &[PairId] {
        let element = self.elements[id as usize];
        &self.edges[element.start as usize..][..element.attributes as usize]
    }

    /// The children of an element in document order.
    #[inline]
    pub fn children(
        &self,
        id: ElementId,
    ) -> impl DoubleEndedIterator<Item = Child> + ExactSizeIterator + Clone + '_ {
        let element = self.elements[id as usize];
        let start = (element.start + element.attributes) as usize;
        self.edges[start..self.end(id)].iter().map(|&packed| Child::unpack(packed))
    }

    /// How many attributes and children an element has, itself counted too.
    #[inline]
    pub fn width(&self, id: ElementId) -> usize {
        1 + self.end(id) - self.elements[id as usize].start as usize
    }

    #[inline]
    fn end(&self, id: ElementId) -> usize {
        match self.elements.get(id as usize + 1) {
            Some(next) => next.start as usize,
            None => self.edges.len(),
        }
    }

    /// Elements of a name, ascending.
    pub fn elements_named(&self, name: NameId) -> &[ElementId] {
        &self.by_name[name as usize]
    }

    /// Elements that bear an attribute, ascending.
    pub fn elements_bearing(&self, pair: PairId) -> &[ElementId] {
        &self.by_pair[pair as usize]
    }

    /// Attributes (and instructions) of a name.
    pub fn pairs_named(&self, name: NameId) -> &[PairId] {
        &self.pairs_by_name[name as usize]
    }

    /// The distinct elements that contain an element as a child.
    #[inline]
    pub fn parents(&self, id: ElementId) -> impl Iterator<Item = ElementId> + '_ {
        let mut link = self.parent_heads[id as usize];
        std::iter::from_fn(move || {
            let &(parent, next) = self.parent_links.get(link as usize)?;
            link = next;
            Some(parent)
        })
    }

    /// Bytes in memory.
    pub fn nbytes(&self) -> usize {
        let nested = |lists: &Vec<Vec<u32>>| {
            lists.capacity() * 24 + lists.iter().map(|list| list.capacity() * 4).sum::<usize>()
        };
        let index =
            self.name_index.capacity() + self.pair_index.capacity() + self.element_index.capacity();
        self.strings.nbytes()
            + self.names.capacity() * 12
            + self.pairs.capacity() * 8
            + self.elements.capacity() * 12
            + self.edges.capacity() * 4
            + index * 5
            + nested(&self.by_name)
            + nested(&self.by_pair)
            + nested(&self.pairs_by_name)
            + self.parent_heads.capacity() * 4
            + self.parent_links.capacity() * 8
    }

    /// The number of a name, which is added when it is new.
    pub fn name(&mut self, uri: &str, prefix: &str, local: &str) -> Result<NameId, ImageError> {
        let name = Name {
            uri: self.strings.intern(uri)?,
            prefix: self.strings.intern(prefix)?,
            local: self.strings.intern(local)?,
        };
        Ok(self.find_name(name).unwrap_or_else(|| self.add_name(name)))
    }

    pub(super) fn find_name(&self, name: Name) -> Option<NameId> {
        let hash = self.hasher.hash_one(name);
        self.name_index.find(hash, |&id| self.names[id as usize] == name).copied()
    }

    pub(super) fn add_name(&mut self, name: Name) -> NameId {
        let id = self.names.len() as NameId;
        self.names.push(name);
        self.by_name.push(Vec::new());
        self.pairs_by_name.push(Vec::new());
        // The document's row is not a name that a tag could bear.
        if id != DOCUMENT {
            let Store { names, name_index, hasher, .. } = self;
            let hash = hasher.hash_one(name);
            name_index.insert_unique(hash, id, |&other| hasher.hash_one(names[other as usize]));
        }
        id
    }

    /// The number of an attribute or instruction, which is added when it is new.
    #[inline]
    pub fn intern_pair(&mut self, name: NameId, value: &str) -> Result<PairId, ImageError> {
        let pair = (name, self.strings.intern(value)?);
        let hash = self.hasher.hash_one(pair);
        if let Some(&id) = self.pair_index.find(hash, |&id| self.pairs[id as usize] == pair) {
            return Ok(id);
        }
        self.add_pair(pair)
    }

    pub(super) fn add_pair(&mut self, pair: (NameId, StrId)) -> Result<PairId, ImageError> {
        let id = self.pairs.len() as PairId;
        check(id)?;
        self.pairs.push(pair);
        self.by_pair.push(Vec::new());
        self.pairs_by_name[pair.0 as usize].push(id);
        let Store { pairs, pair_index, hasher, .. } = self;
        let hash = hasher.hash_one(pair);
        pair_index.insert_unique(hash, id, |&other| hasher.hash_one(pairs[other as usize]));
        Ok(id)
    }

    /// The number of an attribute, if any element bears it.
    pub fn find_pair(&self, name: NameId, value: StrId) -> Option<PairId> {
        let hash = self.hasher.hash_one((name, value));
        self.pair_index.find(hash, |&id| self.pairs[id as usize] == (name, value)).copied()
    }

    /// The number of a text or comment.
    #[inline]
    pub fn intern_text(&mut self, text: &str) -> Result<StrId, ImageError> {
        let id = self.strings.intern(text)?;
        check(id)?;
        Ok(id)
    }

    /// The number of the row with this name and these edges, which is added when it is new.
    pub(super) fn intern_element(
        &mut self,
        name: NameId,
        attributes: u32,
        edges: &[u32],
    ) -> Result<ElementId, ImageError> {
        let hash = hash_row(&self.hasher, name, attributes, edges);
        let same = |&id: &ElementId| {
            let row = self.elements[id as usize];
            row.name == name
                && row.attributes == attributes
                && self.edges[row.start as usize..self.end(id)] == *edges
        };
        if let Some(&id) = self.element_index.find(hash, same) {
            return Ok(id);
        }
        let id = self.elements.len() as ElementId;
        check(id)?;
        if self.edges.len() + edges.len() > u32::MAX as usize {
            return Err(ImageError("the partition holds too many nodes".into()));
        }
        self.elements.push(Element { name, start: self.edges.len() as u32, attributes });
        self.edges.extend_from_slice(edges);
        self.index_element(id, hash);
        Ok(id)
    }

    /// Enters a row that has just been appended into every index.
    fn index_element(&mut self, id: ElementId, hash: u64) {
        let Store { elements, edges, element_index, hasher, .. } = self;
        element_index.insert_unique(hash, id, |&other| {
            let row = elements[other as usize];
            let end =
                elements.get(other as usize + 1).map_or(edges.len(), |next| next.start as usize);
            hash_row(hasher, row.name, row.attributes, &edges[row.start as usize..end])
        });
        let row = self.elements[id as usize];
        let end = self.end(id);
        let (attributes, children) =
            self.edges[row.start as usize..end].split_at(row.attributes as usize);
        self.by_name[row.name as usize].push(id);
        for &pair in attributes {
            self.by_pair[pair as usize].push(id);
        }
        self.parent_heads.push(NONE);
        for &packed in children {
            if let Child::Element(child) = Child::unpack(packed) {
                let head = &mut self.parent_heads[child as usize];
                // Equal siblings are adjacent in the child's list: one link is enough.
                if self.parent_links.get(*head as usize).is_none_or(|&(parent, _)| parent != id) {
                    self.parent_links.push((id, *head));
                    *head = self.parent_links.len() as u32 - 1;
                }
            }
        }
    }

    /// Builds the indexes over rows that were read from a file and checked.
    pub(super) fn index_all_elements(&mut self) {
        for id in 0..self.elements.len() as ElementId {
            let row = self.elements[id as usize];
            let edges = &self.edges[row.start as usize..self.end(id)];
            let hash = hash_row(&self.hasher, row.name, row.attributes, edges);
            self.index_element(id, hash);
        }
    }

    /// Copies a subtree of another store into this one. `moved` remembers what was copied.
    pub(super) fn copy_from(
        &mut self,
        other: &Store,
        id: ElementId,
        moved: &mut [ElementId],
    ) -> Result<ElementId, ImageError> {
        if moved[id as usize] != NONE {
            return Ok(moved[id as usize]);
        }
        let mut edges = Vec::new();
        for &pair in other.attributes(id) {
            edges.push(self.copy_pair(other, pair)?);
        }
        for child in other.children(id) {
            let text = |id| other.strings.get(id);
            let copied = match child {
                Child::Element(child) => Child::Element(self.copy_from(other, child, moved)?),
                Child::Text(value) => Child::Text(self.intern_text(text(value))?),
                Child::Comment(value) => Child::Comment(self.intern_text(text(value))?),
                Child::Instruction(pair) => Child::Instruction(self.copy_pair(other, pair)?),
            };
            edges.push(copied.pack());
        }
        let row = other.elements[id as usize];
        let name = self.copy_name(other, row.name)?;
        let copy = self.intern_element(name, row.attributes, &edges)?;
        moved[id as usize] = copy;
        Ok(copy)
    }

    fn copy_name(&mut self, other: &Store, name: NameId) -> Result<NameId, ImageError> {
        if name == DOCUMENT {
            return Ok(DOCUMENT);
        }
        let Name { uri, prefix, local } = other.names[name as usize];
        let text = |id| other.strings.get(id);
        self.name(text(uri), text(prefix), text(local))
    }

    fn copy_pair(&mut self, other: &Store, pair: PairId) -> Result<PairId, ImageError> {
        let (name, value) = other.pair(pair);
        let name = self.copy_name(other, name)?;
        self.intern_pair(name, other.strings.get(value))
    }
}

fn hash_row(hasher: &DefaultHashBuilder, name: NameId, attributes: u32, edges: &[u32]) -> u64 {
    hasher.hash_one((name, attributes, bytemuck::cast_slice::<u32, u8>(edges)))
}

fn check(id: u32) -> Result<(), ImageError> {
    if id > MAX_ID { Err(ImageError("the partition holds too many values".into())) } else { Ok(()) }
}
