//! `count()` and `sum()` of a path, for all documents at once.

use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::xpath::ir::{Axis, NodeSet, Step};
use crate::xpath::parts::Use;

use super::anchors::{Split, ValueTest, split};
use super::columns::{Columns, DocumentPath, FEW, document_paths};
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
        let Some(split) = self.worthwhile(path, ValueTest::Present, documents)? else {
            if documents.len() > FEW {
                return Ok(None);
            }
            let one = |&document: &ElementId| {
                self.total_below(self.start(path.absolute, document)?, path.steps, counted)
            };
            return documents.iter().map(one).collect();
        };
        let store = self.local.store;
        let hits = self.search().hits(split, ValueTest::Present)?;
        self.local.budget.spend(store.elements().len() / 64)?;
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

    /// The totals of a union, where its paths can have no node in common.
    pub(super) fn union_totals(
        &self,
        set: &'a NodeSet,
        counted: bool,
        documents: &[ElementId],
    ) -> Evaluated<Option<Vec<f64>>> {
        let Some(paths) = document_paths(set, Use::Each) else { return Ok(None) };
        if !self.are_disjoint(&paths)? {
            return Ok(None);
        }
        let mut sums = vec![0.0; documents.len()];
        for path in &paths {
            let Some(column) = self.totals(path, counted, documents)? else { return Ok(None) };
            sums.iter_mut().zip(column).for_each(|(sum, total)| *sum += total);
        }
        let exact = sums.iter().all(|sum| sum.is_nan() || *sum < EXACT);
        Ok(exact.then_some(sums))
    }

    /// Whether the elements that the last steps start from are others for every path. Then so are
    /// the children or attributes that they lead to.
    fn are_disjoint(&self, paths: &[DocumentPath<'a>]) -> Evaluated<bool> {
        let mut owners: Vec<ElementId> = Vec::new();
        for path in paths {
            let Some(split @ Split::Elements(_, [before @ .., last])) = split(path.steps) else {
                return Ok(false);
            };
            if !path.absolute || !matches!(last.axis, Axis::Child | Axis::Attribute) {
                return Ok(false);
            }
            let mut own = Vec::new();
            for id in self.search().hits(split, ValueTest::Present)? {
                self.local.walk(Item::Element(id), before, &mut |item| {
                    if let Item::Element(id) = item {
                        own.push(id);
                    }
                    Ok(false)
                })?;
            }
            own.sort_unstable();
            own.dedup();
            owners.append(&mut own);
        }
        self.local.budget.spend(owners.len())?;
        owners.sort_unstable();
        Ok(owners.is_sorted_by(|a, b| a < b))
    }

    /// The total of one subtree, if it is one that adds up to the same in any order.
    fn total_below(&self, item: Item, steps: &'a [Step], counted: bool) -> Evaluated<Option<f64>> {
        let mut total = 0.0;
        let mut exact = true;
        self.local.walk(item, steps, &mut |item| {
            let value = if counted { 1.0 } else { self.texts.number(item)? };
            // What is not a number makes the whole sum none, whenever it is added.
            exact &= value.is_nan() || (value >= 0.0 && value.fract() == 0.0);
            total += value;
            Ok(!exact)
        })?;
        Ok((exact && (total.is_nan() || total < EXACT)).then_some(total))
    }
}
