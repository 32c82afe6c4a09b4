//! The rows of an image, and of its skeletons, as those of one store.
//!
//! A row that an expression cannot tell from what it became in the skeleton is asked about there, with all
//! that is below it. So what is worked out for a document is what sets it apart from others, and no more.

use crate::eval::Evaluated;
use crate::image::{Child, DOCUMENT, ElementId, NameId, Skeleton, Store};
use crate::plan::local::{Item, Local};
use crate::plan::places::Places;
use crate::plan::reach::Reached;
use crate::plan::texts::Texts;

/// The highest bits of the numbers of nodes say in which layer they are: stores use less.
const SHIFT: u32 = 30;
const NUMBER: u32 = (1 << SHIFT) - 1;

/// One store, and which of its rows are answered by the next layer.
pub struct Layer<'a, 't> {
    pub texts: &'t Texts<'a>,
    below: Option<(&'a Skeleton, Places)>,
    /// How many rows of the layers above are asked about themselves.
    offset: usize,
}

/// Stores of which each is the skeleton of the one above.
pub struct Layers<'a, 't>(Vec<Layer<'a, 't>>);

impl<'a, 't> Layers<'a, 't> {
    /// One store alone.
    pub fn only(texts: &'t Texts<'a>) -> Self {
        Layers(vec![Layer { texts, below: None, offset: 0 }])
    }

    /// Adds what the last layer's documents have in common, except where some elements are.
    pub fn add(
        &mut self,
        skeleton: &'a Skeleton,
        texts: &'t Texts<'a>,
        differences: &[ElementId],
    ) -> Evaluated<()> {
        let last = self.0.last_mut().expect("there is a first");
        let Local { store, budget, .. } = last.texts.local;
        let reached = Reached::from(store, differences, budget)?.rows();
        let own = Places::of(reached.into_iter(), store.elements().len());
        let offset = last.offset + own.rows().len();
        last.below = Some((skeleton, own));
        self.0.push(Layer { texts, below: None, offset });
        Ok(())
    }

    /// The names and the budget, which all layers share, with the first store.
    pub fn first(&self) -> Local<'a> {
        self.0[0].texts.local
    }

    /// The last store, which is asked about most.
    pub fn last(&self) -> Local<'a> {
        self.0.last().expect("there is a first").texts.local
    }

    /// The row of an element in the last store, if it is there.
    #[inline]
    pub fn in_last(&self, id: ElementId) -> Option<ElementId> {
        ((id >> SHIFT) as usize + 1 == self.0.len()).then_some(id & NUMBER)
    }

    /// How many rows can be asked about.
    pub fn size(&self) -> usize {
        self.0.last().map_or(0, |last| last.offset + last.texts.local.store.elements().len())
    }

    /// The place of a row among those that can be asked about.
    #[inline]
    pub fn place(&self, id: ElementId) -> usize {
        let layer = &self.0[(id >> SHIFT) as usize];
        let row = id & NUMBER;
        layer.offset + layer.below.as_ref().map_or(row as usize, |(_, own)| own.place(row))
    }

    /// The row that answers for one of the first layer.
    pub fn row(&self, id: ElementId) -> ElementId {
        self.row_in(0, id)
    }

    #[inline]
    fn row_in(&self, mut layer: usize, mut id: ElementId) -> ElementId {
        for above in &self.0[layer..] {
            let Some((skeleton, own)) = &above.below else { break };
            if own.contains(id) {
                break;
            }
            id = skeleton.row(id);
            layer += 1;
        }
        tagged(layer, id)
    }

    /// The texts of a node's layer, and the node as it is there.
    #[inline]
    pub fn texts(&self, item: Item) -> (&'t Texts<'a>, Item) {
        if let [only] = self.0.as_slice() {
            return (only.texts, item);
        }
        let (Item::Element(id)
        | Item::Attribute(id)
        | Item::Text(id)
        | Item::Comment(id)
        | Item::Instruction(id)) = item;
        (self.0[(id >> SHIFT) as usize].texts, with(item, |id| id & NUMBER))
    }

    /// The layer of an element, its store, and its row there.
    #[inline]
    pub fn element(&self, id: ElementId) -> (usize, &'a Store, ElementId) {
        let layer = (id >> SHIFT) as usize;
        (layer, self.0[layer].texts.local.store, id & NUMBER)
    }

    /// The name of an element.
    #[inline]
    pub fn name(&self, id: ElementId) -> NameId {
        let (_, store, row) = self.element(id);
        store.elements()[row as usize].name
    }

    pub fn is_document(&self, item: Item) -> bool {
        matches!(item, Item::Element(id) if self.name(id) == DOCUMENT)
    }

    /// The children of an element.
    #[inline]
    pub fn children(&self, id: ElementId) -> impl ExactSizeIterator<Item = Item> + '_ {
        let (layer, store, row) = self.element(id);
        let is_last = self.0[layer].below.is_none();
        store.children(row).map(move |child| match child {
            Child::Element(id) if is_last => Item::Element(tagged(layer, id)),
            Child::Element(id) => Item::Element(self.row_in(layer, id)),
            Child::Text(id) => Item::Text(tagged(layer, id)),
            Child::Comment(id) => Item::Comment(tagged(layer, id)),
            Child::Instruction(id) => Item::Instruction(tagged(layer, id)),
        })
    }

    /// The attributes of an element.
    #[inline]
    pub fn attributes(&self, id: ElementId) -> impl Iterator<Item = Item> + '_ {
        let (layer, store, row) = self.element(id);
        store.attributes(row).iter().map(move |&pair| Item::Attribute(tagged(layer, pair)))
    }

    /// How many attributes and children an element has, itself counted too.
    pub fn width(&self, id: ElementId) -> usize {
        let (_, store, row) = self.element(id);
        store.width(row)
    }
}

#[inline]
fn tagged(layer: usize, id: u32) -> u32 {
    (layer as u32) << SHIFT | id
}

#[inline]
fn with(item: Item, change: impl Fn(u32) -> u32) -> Item {
    match item {
        Item::Element(id) => Item::Element(change(id)),
        Item::Attribute(id) => Item::Attribute(change(id)),
        Item::Text(id) => Item::Text(change(id)),
        Item::Comment(id) => Item::Comment(change(id)),
        Item::Instruction(id) => Item::Instruction(change(id)),
    }
}
