//! Columns over what documents have in common.

use crate::eval::Evaluated;
use crate::image::ElementId;

use super::agreement::Agreement;
use super::columns::{Columns, Common};
use super::needs::Needs;
use super::places::Places;
use super::reach::Reached;

/// Where more of the documents than one of so many differ from what they have in common, all are
/// asked about.
const DIFFERENT: usize = 4;

/// Asks about documents by the columns of their store.
type Ask<'f, 'a, T> = &'f dyn Fn(&Columns<'a>, &[ElementId]) -> Evaluated<Vec<T>>;

impl<'a> Columns<'a> {
    /// Asks about the documents of the skeleton, as far as those of the image are like them, and about
    /// the others where they are.
    pub(super) fn in_common<T: Copy>(
        &self,
        needs: &Needs<'a>,
        documents: &[ElementId],
        ask: Ask<'_, 'a, T>,
    ) -> Evaluated<Vec<T>> {
        let Some(Common { skeleton, columns }) = &self.common else { return ask(self, documents) };
        let limit = documents.len() / DIFFERENT;
        let (image, left) = (&self.texts, &columns.texts);
        let agreement = Agreement { skeleton, image, left, below: columns, limit };
        let Some(differences) = agreement.differences(needs)? else { return ask(self, documents) };
        let reached = match differences.as_slice() {
            [] => None,
            _ => Some(Reached::from(self.local.store, &differences, self.local.budget)?),
        };
        let is_other = |id: ElementId| reached.as_ref().is_some_and(|reached| reached.contains(id));
        let others: Vec<_> = documents.iter().copied().filter(|&id| is_other(id)).collect();
        if others.len() > limit {
            return ask(self, documents);
        }
        self.local.budget.spend(documents.len())?;
        let alike = documents.iter().filter(|&&id| !is_other(id));
        let size = skeleton.store().elements().len();
        self.local.budget.spend(size / 64)?;
        let places = Places::of(alike.map(|&id| skeleton.row(id)), size);
        let of_rows = match places.rows() {
            [] => Vec::new(),
            rows => columns.in_common(needs, rows, ask)?,
        };
        let of_others = if others.is_empty() { Vec::new() } else { ask(self, &others)? };
        let mut of_others = of_others.into_iter();
        let answer = |&id: &ElementId| match is_other(id) {
            true => of_others.next().expect("each was asked about"),
            false => of_rows[places.place(skeleton.row(id))],
        };
        Ok(documents.iter().map(answer).collect())
    }
}
