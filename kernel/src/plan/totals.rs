//! `count()` and `sum()` of a path, for all documents at once.

use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::xpath::ir::Step;
use crate::xpath::number;

use super::anchors::ValueTest;
use super::columns::{Columns, DocumentPath};
use super::local::Item;
use super::reach::Reached;

/// Integers up to here add up to the same double in any order.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<'a> Columns<'a> {
    /// How many nodes a path has in each document, or what their numbers add up to. None when the
    /// order of the addition could matter, which only the interpreter keeps.
    pub(super) fn totals(
        &self,
        path: &DocumentPath<'a>,
        counted: bool,
        documents: &[ElementId],
    ) -> Evaluated<Option<Vec<f64>>> {
        let Some(split) = self.worthwhile(path, ValueTest::Present, documents) else {
            let mut column = Vec::with_capacity(documents.len());
            for &document in documents {
                let start = self.start(path.absolute, document);
                let Some(total) = self.total_below(start, path.steps, counted)? else {
                    return Ok(None);
                };
                column.push(total);
            }
            return Ok(Some(column));
        };
        let store = self.local.store;
        let hits = self.search().hits(split, ValueTest::Present)?;
        let mut totals = vec![0.0; store.elements().len()];
        for &id in &hits {
            let Some(total) = self.total_below(Item::Element(id), split.rest(), counted)? else {
                return Ok(None);
            };
            totals[id as usize] = total;
        }
        // Ascending, so that every subtree is complete before it is added to what contains it.
        for id in Reached::from(store, &hits, self.local.budget)?.ascending() {
            for child in store.children(id) {
                self.local.budget.spend(1)?;
                if let Child::Element(child) = child {
                    totals[id as usize] += totals[child as usize];
                }
            }
        }
        let column: Vec<f64> =
            documents.iter().map(|&document| totals[document as usize]).collect();
        let exact = column.iter().all(|total| total.is_nan() || *total < EXACT);
        Ok(exact.then_some(column))
    }

    /// The total of one subtree, if it is one that adds up to the same in any order.
    fn total_below(&self, item: Item, steps: &'a [Step], counted: bool) -> Evaluated<Option<f64>> {
        let mut total = 0.0;
        let mut exact = true;
        self.local.walk(item, steps, &mut |item| {
            let value = if counted { 1.0 } else { number::parse(&self.local.value(item)?) };
            // What is not a number makes the whole sum none, whenever it is added.
            exact &= value.is_nan() || (value >= 0.0 && value.fract() == 0.0);
            total += value;
            Ok(!exact)
        })?;
        Ok((exact && (total.is_nan() || total < EXACT)).then_some(total))
    }
}
