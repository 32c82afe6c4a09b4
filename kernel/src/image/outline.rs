//! Which kinds of nodes stand where in a store: the names below each name.
//!
//! A path that leads nowhere in the outline leads nowhere in any document. The reverse is not true: the
//! outline joins what elements of one name have.

use super::store::{Child, DOCUMENT, ElementId, NameId, Store};

/// Stores with more names than this have no outline: its size grows with their square.
const MAX_NAMES: usize = 512;

/// A set of classes of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(Vec<u64>);

impl Classes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Whether a class is one of them.
    pub fn contains(&self, class: usize) -> bool {
        self.0[class / 64] >> (class % 64) & 1 == 1
    }

    /// Adds a class.
    pub fn insert(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    /// Takes a class away.
    pub fn remove(&mut self, class: usize) {
        self.0[class / 64] &= !(1 << (class % 64));
    }

    /// Adds all classes of another set.
    pub fn extend(&mut self, other: &Classes) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        })
    }
}

/// What a class of nodes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The document, or elements of a name.
    Element(NameId),
    /// Attributes of a name.
    Attribute(NameId),
    /// Texts.
    Text,
    /// Comments.
    Comment,
    /// Processing instructions.
    Instruction,
}

/// Which classes are below which.
#[derive(Debug, Clone)]
pub struct Outline {
    names: usize,
    /// The children and the attributes of the elements of each name.
    children: Vec<Classes>,
    attributes: Vec<Classes>,
    /// The parents of each class.
    parents: Vec<Classes>,
    /// What is below, and above, each class on any level: every path asks for it.
    descendants: Vec<Classes>,
    ancestors: Vec<Classes>,
}

impl Outline {
    /// The outline of all rows of a store; none where it has too many names.
    pub fn of(store: &Store) -> Option<Self> {
        let names = store.names().len();
        if names > MAX_NAMES {
            return None;
        }
        let none = Classes(vec![0; (names * 2 + 3).div_ceil(64)]);
        let mut made = Outline {
            names,
            children: vec![none.clone(); names],
            attributes: vec![none.clone(); names],
            parents: vec![none; names * 2 + 3],
            descendants: Vec::new(),
            ancestors: Vec::new(),
        };
        for id in 0..store.elements().len() as ElementId {
            let name = store.elements()[id as usize].name as usize;
            for &pair in store.attributes(id) {
                let class = made.class(Class::Attribute(store.pair(pair).0));
                made.attributes[name].insert(class);
                made.parents[class].insert(name);
            }
            for child in store.children(id) {
                let class = made.class(match child {
                    Child::Element(id) => Class::Element(store.elements()[id as usize].name),
                    Child::Text(_) => Class::Text,
                    Child::Comment(_) => Class::Comment,
                    Child::Instruction(_) => Class::Instruction,
                });
                made.children[name].insert(class);
                made.parents[class].insert(name);
            }
        }
        made.descendants = made.closed(&made.children);
        made.ancestors = made.closed(&made.parents);
        Some(made)
    }

    /// The number of a class.
    pub fn class(&self, class: Class) -> usize {
        match class {
            Class::Element(name) => name as usize,
            Class::Attribute(name) => self.names + name as usize,
            Class::Text => self.names * 2,
            Class::Comment => self.names * 2 + 1,
            Class::Instruction => self.names * 2 + 2,
        }
    }

    /// What a number stands for.
    pub fn named(&self, class: usize) -> Class {
        match class.checked_sub(self.names * 2) {
            None if class < self.names => Class::Element(class as NameId),
            None => Class::Attribute((class - self.names) as NameId),
            Some(0) => Class::Text,
            Some(1) => Class::Comment,
            Some(_) => Class::Instruction,
        }
    }

    /// No class.
    pub fn none(&self) -> Classes {
        Classes(vec![0; (self.names * 2 + 3).div_ceil(64)])
    }

    /// One class.
    pub fn only(&self, class: usize) -> Classes {
        let mut classes = self.none();
        classes.insert(class);
        classes
    }

    /// Whatever stands in a document, except attributes and the document itself.
    pub fn inside(&self) -> Classes {
        let mut classes = self.none();
        self.children.iter().for_each(|children| classes.extend(children));
        classes
    }

    /// The children of nodes.
    pub fn children(&self, of: &Classes) -> Classes {
        self.joined(&self.children, of.iter().take_while(|&class| class < self.names))
    }

    /// The attributes of nodes.
    pub fn attributes(&self, of: &Classes) -> Classes {
        self.joined(&self.attributes, of.iter().take_while(|&class| class < self.names))
    }

    /// The parents of nodes.
    pub fn parents(&self, of: &Classes) -> Classes {
        self.joined(&self.parents, of.iter())
    }

    /// The children of nodes, their children, and so on.
    pub fn descendants(&self, of: &Classes) -> Classes {
        self.joined(&self.descendants, of.iter().take_while(|&class| class < self.names))
    }

    /// The parents of nodes, their parents, and so on.
    pub fn ancestors(&self, of: &Classes) -> Classes {
        self.joined(&self.ancestors, of.iter())
    }

    /// What may stand directly in a document.
    pub fn roots(&self) -> Classes {
        self.children(&self.only(DOCUMENT as usize))
    }

    /// Bytes in memory.
    pub fn nbytes(&self) -> usize {
        let below = self.children.len() + self.attributes.len() + self.descendants.len();
        let sets = below + self.parents.len() + self.ancestors.len();
        sets * (24 + 8 * (self.names * 2 + 3).div_ceil(64))
    }

    fn joined(&self, sets: &[Classes], of: impl Iterator<Item = usize>) -> Classes {
        let mut classes = self.none();
        of.for_each(|class| classes.extend(&sets[class]));
        classes
    }

    /// What the sets lead to from each class, in one step or more.
    fn closed(&self, sets: &[Classes]) -> Vec<Classes> {
        (0..sets.len())
            .map(|class| {
                let mut all = self.none();
                let mut pending = vec![class];
                while let Some(class) = pending.pop() {
                    for next in sets.get(class).into_iter().flat_map(Classes::iter) {
                        if !all.contains(next) {
                            all.insert(next);
                            pending.push(next);
                        }
                    }
                }
                all
            })
            .collect()
    }
}
