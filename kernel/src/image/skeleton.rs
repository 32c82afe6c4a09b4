//! The documents of an image without what sets each apart.
//!
//! A serial number or a host name makes rows of a machine, and all that contain them, rows of its own. A
//! skeleton is a store in which such values are replaced: one that hardly any document has by the
//! first such of its place. Machines of one configuration are one document there. Nothing else
//! differs, so an expression is answered there for all documents whose replaced values it does not
//! tell from what replaces them.

use super::MIN_DOCUMENTS;
use super::census::{Census, Rule};
use super::store::{Child, ElementId, NameId, PairId, Store};
use crate::error::ImageError;
use crate::intern::StrId;

const NONE: u32 = u32::MAX;

/// The distinct rows that are left, and what became of those of the image.
#[derive(Debug, Clone)]
pub struct Skeleton {
    store: Store,
    /// The row of the skeleton for each row of the image; none for those that no document has.
    rows: Vec<ElementId>,
    /// The attribute of the skeleton for each attribute.
    pairs: Vec<PairId>,
    /// The attributes of each name that were replaced, and the one that replaced them.
    replaced_pairs: Vec<Vec<PairId>>,
    stand_ins: Vec<PairId>,
    /// The rows whose string-values may have changed, by bits.
    changed: Vec<u64>,
    /// The rows that have a replaced text of their own.
    replaced: Vec<ElementId>,
    /// The bytes of each row's string-value in the image.
    lengths: Vec<u32>,
    /// How many of the first of them are as they were, at least.
    alike: Vec<u32>,
    /// What is left of this skeleton by the next rule.
    next: Option<Box<Skeleton>>,
}

impl Skeleton {
    /// The skeleton of some documents, first without what few of them have, and then without what tells
    /// those of one structure apart; none where it would not be much smaller.
    pub(super) fn of(store: &Store, documents: &[ElementId]) -> Option<Self> {
        if documents.len() < MIN_DOCUMENTS {
            return None;
        }
        let mut first = Self::by(Rule::FEW_HAVE, store, documents);
        let (store, mut rows) = match &first {
            Some(first) => {
                (&first.store, documents.iter().map(|&id| first.row(id)).collect::<Vec<_>>())
            }
            None => (store, documents.to_vec()),
        };
        rows.sort_unstable();
        rows.dedup();
        let second = Self::by(Rule::STRUCTURE_LEAVES_OPEN, store, &rows);
        match &mut first {
            Some(first) => first.next = second.map(Box::new),
            None => first = second,
        }
        first
    }

    fn by(rule: Rule, store: &Store, documents: &[ElementId]) -> Option<Self> {
        let census = Census::of(rule, store, documents);
        let made = Builder::new(store, &census).build().ok()?;
        (made.store.elements().len() * 2 <= census.living()).then_some(made)
    }

    /// The skeleton of the skeleton.
    pub fn next(&self) -> Option<&Skeleton> {
        self.next.as_deref()
    }

    /// The rows that are left when all rules have been applied.
    pub(super) fn innermost(&self) -> &Store {
        self.next.as_ref().map_or(&self.store, |next| next.innermost())
    }

    /// The rows that are left. Names have the numbers that they have in the image.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What a row became.
    #[inline]
    pub fn row(&self, id: ElementId) -> ElementId {
        self.rows[id as usize]
    }

    /// What an attribute became.
    #[inline]
    pub fn pair(&self, id: PairId) -> PairId {
        self.pairs[id as usize]
    }

    /// The attributes of a name that were replaced, all by one.
    pub fn replaced_pairs(&self, name: NameId) -> &[PairId] {
        &self.replaced_pairs[name as usize]
    }

    /// The attribute of the image that replaced others of its name, if there is one.
    pub fn stand_in(&self, name: NameId) -> Option<PairId> {
        Some(self.stand_ins[name as usize]).filter(|&pair| pair != NONE)
    }

    /// Whether a row's string-value may be another now.
    #[inline]
    pub fn is_changed(&self, id: ElementId) -> bool {
        self.changed[id as usize / 64] >> (id % 64) & 1 == 1
    }

    /// The rows whose string-values may be others now, ascending.
    pub fn changed(&self) -> impl Iterator<Item = ElementId> + '_ {
        self.changed.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors(Some(word), |&left| Some(left & left.wrapping_sub(1)))
                .take_while(|&left| left != 0)
                .map(move |left| index as ElementId * 64 + left.trailing_zeros())
        })
    }

    /// The rows that have a replaced text of their own, ascending.
    pub fn replaced(&self) -> &[ElementId] {
        &self.replaced
    }

    /// The bytes of the string-value of each row of the image; the most there are for what is longer.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// How many of the first bytes of a row's string-value are as they were, at least.
    #[inline]
    pub fn alike(&self, id: ElementId) -> usize {
        self.alike[id as usize] as usize
    }

    pub(super) fn nbytes(&self) -> usize {
        let lists = self.replaced.len() + self.lengths.len() + self.alike.len();
        let pairs = self.replaced_pairs.iter().map(Vec::capacity).sum::<usize>();
        // A list of its own is three words for each name.
        let names = self.stand_ins.len() * 7;
        let words = self.rows.len() + self.pairs.len() + lists + pairs + names;
        let next = self.next.as_ref().map_or(0, |next| next.nbytes());
        self.store.nbytes() + words * 4 + self.changed.len() * 8 + next
    }
}

struct Builder<'s> {
    image: &'s Store,
    census: &'s Census,
    made: Skeleton,
    /// The texts of the skeleton, by their numbers in the image.
    texts: Vec<StrId>,
    /// What stands for the rare texts of elements of a name.
    text_of: Vec<StrId>,
}

impl<'s> Builder<'s> {
    fn new(image: &'s Store, census: &'s Census) -> Self {
        let names = image.names().len();
        let made = Skeleton {
            store: Store::default(),
            rows: vec![NONE; image.elements().len()],
            pairs: vec![NONE; image.pair_count()],
            replaced_pairs: vec![Vec::new(); names],
            stand_ins: vec![NONE; names],
            changed: vec![0; image.elements().len().div_ceil(64)],
            replaced: Vec::new(),
            lengths: vec![0; image.elements().len()],
            alike: vec![0; image.elements().len()],
            next: None,
        };
        let texts = vec![NONE; image.strings().len()];
        Builder { image, census, made, texts, text_of: vec![NONE; names] }
    }

    fn build(mut self) -> Result<Skeleton, ImageError> {
        for name in &self.image.names()[1..] {
            let text = |id| self.image.strings().get(id);
            self.made.store.name(text(name.uri), text(name.prefix), text(name.local))?;
        }
        let mut edges = Vec::new();
        for id in 0..self.image.elements().len() as ElementId {
            if self.census.is_living(id) {
                edges.clear();
                self.row(id, &mut edges)?;
            }
        }
        Ok(self.made)
    }

    // Where nothing has changed yet, all bytes so far are as they were.
    fn row(&mut self, id: ElementId, edges: &mut Vec<u32>) -> Result<(), ImageError> {
        let row = self.image.elements()[id as usize];
        let (mut length, mut alike) = (0_u32, 0_u32);
        let (mut is_replaced, mut is_changed) = (false, false);
        for &pair in self.image.attributes(id) {
            edges.push(self.pair(pair)?);
        }
        for child in self.image.children(id) {
            let copied = match child {
                Child::Element(child) => {
                    if !is_changed {
                        alike = length.saturating_add(self.made.alike[child as usize]);
                        is_changed = self.made.is_changed(child);
                    }
                    length = length.saturating_add(self.made.lengths[child as usize]);
                    Child::Element(self.made.rows[child as usize])
                }
                Child::Text(text) => {
                    let is_rare = self.census.is_replaced_text(row.name, child);
                    let copy = match is_rare {
                        true => self.rare_text(row.name, text)?,
                        false => self.text(text)?,
                    };
                    let before = self.image.strings().get(text);
                    if !is_changed {
                        let now = self.made.store.strings().get(copy);
                        alike = length.saturating_add(shared_bytes(before, now));
                    }
                    length = length.saturating_add(before.len() as u32);
                    is_replaced |= is_rare;
                    is_changed |= is_rare;
                    Child::Text(copy)
                }
                Child::Comment(text) => Child::Comment(self.text(text)?),
                // What stands for a rare attribute stands for no instruction.
                Child::Instruction(pair) => Child::Instruction(self.exact_pair(pair)?),
            };
            edges.push(copied.pack());
        }
        self.made.rows[id as usize] =
            self.made.store.intern_element(row.name, row.attributes, edges)?;
        self.made.lengths[id as usize] = length;
        self.made.alike[id as usize] = alike;
        if is_replaced {
            self.made.replaced.push(id);
        }
        if is_changed {
            self.made.changed[id as usize / 64] |= 1 << (id % 64);
        }
        Ok(())
    }

    fn text(&mut self, text: StrId) -> Result<StrId, ImageError> {
        if self.texts[text as usize] == NONE {
            self.texts[text as usize] =
                self.made.store.intern_text(self.image.strings().get(text))?;
        }
        Ok(self.texts[text as usize])
    }

    fn rare_text(&mut self, name: u32, text: StrId) -> Result<StrId, ImageError> {
        if self.text_of[name as usize] == NONE {
            self.text_of[name as usize] = self.text(text)?;
        }
        Ok(self.text_of[name as usize])
    }

    fn pair(&mut self, pair: PairId) -> Result<PairId, ImageError> {
        if self.made.pairs[pair as usize] != NONE {
            return Ok(self.made.pairs[pair as usize]);
        }
        let name = self.image.pair(pair).0;
        let stand_in = self.made.stand_in(name);
        let is_rare = self.census.is_replaced(name, pair);
        let copy = match stand_in.filter(|_| is_rare) {
            Some(stand_in) => {
                self.made.replaced_pairs[name as usize].push(pair);
                self.made.pairs[stand_in as usize]
            }
            None => self.exact_pair(pair)?,
        };
        if is_rare && stand_in.is_none() {
            self.made.stand_ins[name as usize] = pair;
        }
        self.made.pairs[pair as usize] = copy;
        Ok(copy)
    }

    fn exact_pair(&mut self, pair: PairId) -> Result<PairId, ImageError> {
        let (name, value) = self.image.pair(pair);
        self.made.store.intern_pair(name, self.image.strings().get(value))
    }
}

/// How many bytes two texts begin with alike.
fn shared_bytes(a: &str, b: &str) -> u32 {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count() as u32
}
