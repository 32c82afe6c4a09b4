//! Expressions over a whole partition, a column at a time.
//!
//! [`columns`] evaluates the operators outside of paths for all documents at once. A path that
//! [`support`] allows is answered from postings: [`anchors`] finds the distinct elements where it
//! can begin, [`search`] and [`local`] look at each of them once, and [`reach`] carries the hits up to the
//! documents. Everything else is asked of distinct subtrees and what their surroundings come to
//! ([`dag`]), and what that leaves goes to the interpreter, document by document. Either is only asked
//! about the documents that `and` and `or` have left undecided.

mod agreement;
mod anchors;
mod columns;
mod common;
mod dag;
mod explain;
mod finder;
mod firsts;
mod local;
mod looks;
mod needs;
mod places;
mod projection;
mod reach;
mod search;
mod shared;
mod simplify;
mod support;
mod texts;
mod totals;

use std::borrow::Cow;

use crate::budget::Budget;
use crate::error::BudgetExceeded;
use crate::image::{ElementId, PartitionImage};
use crate::xpath::Expression;
use crate::xpath::bound::bind;

use columns::Columns;
pub use explain::explain;
use places::Places;
use simplify::simplified;

/// Whoever asks about a smaller part of the documents does not care for what all have in common.
const PART: usize = 4;

/// A bitmap of slots: bit `n % 8`, least significant first, of byte `n / 8`.
pub type Bitmap = Vec<u8>;

/// The documents of an image that expressions are asked about.
pub struct Asked<'i> {
    image: &'i PartitionImage,
    chosen: Vec<(u32, ElementId)>,
    /// Equal documents are one document.
    documents: Places,
}

impl<'i> Asked<'i> {
    /// The documents of the occupied slots of an image, or of those of them in `slots`.
    pub fn new(image: &'i PartitionImage, slots: Option<&[u8]>) -> Self {
        let is_wanted = |slot: u32| {
            slots.is_none_or(|slots| {
                slots.get(slot as usize / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
            })
        };
        let chosen: Vec<_> = image.slots().filter(|&(slot, _)| is_wanted(slot)).collect();
        let rows = chosen.iter().map(|&(_, document)| document);
        let documents = Places::of(rows, image.store().elements().len());
        Asked { image, chosen, documents }
    }

    /// The slots whose documents an expression holds of. The bitmap is as long as the image's slots need.
    pub fn evaluate(
        &self,
        expression: &Expression,
        budget: &Budget,
    ) -> Result<Bitmap, BudgetExceeded> {
        let (image, documents) = (self.image, self.documents.rows());
        let store = image.store();
        budget.spend(expression.wanted().len() * store.names().len() / 16)?;
        let names = bind(expression.wanted(), store);
        let mut root = Cow::Borrowed(expression.root());
        let mut skeleton = None;
        if documents.len() * PART >= image.len() {
            if let Some(outline) = image.outline() {
                root = Cow::Owned(simplified(&root, store, outline, &names, budget)?);
            }
            skeleton = image.skeleton();
        }
        let columns = Columns::new(store, &names, budget);
        let columns = skeleton.into_iter().fold(columns, Columns::over);
        let verdicts = columns.bool(&root, documents)?;
        let mut members = vec![0; image.slot_count().div_ceil(8)];
        for &(slot, document) in &self.chosen {
            let verdict = verdicts[self.documents.place(document)];
            members[slot as usize / 8] |= u8::from(verdict) << (slot % 8);
        }
        Ok(members)
    }
}

/// Evaluates an expression on the occupied slots of an image, or on those of them in `slots`.
pub fn evaluate(
    image: &PartitionImage,
    expression: &Expression,
    slots: Option<&[u8]>,
    budget: &Budget,
) -> Result<Bitmap, BudgetExceeded> {
    Asked::new(image, slots).evaluate(expression, budget)
}
