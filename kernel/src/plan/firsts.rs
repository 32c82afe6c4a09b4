//! What is read of the first node of a path, for all documents at once.

use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::xpath::ir::{Axis, Start, Step};
use crate::xpath::parts::Use;

use super::anchors::{Split, ValueTest};
use super::columns::{Columns, DocumentPath, FEW, origin};
use super::local::Item;
use super::reach::Reached;
use super::support;

impl<'a> Columns<'a> {
    /// What is read of the first node of a path in each document, or what stands for none. No column
    /// where postings do not tell.
    pub(super) fn first_of<T: Clone>(
        &self,
        start: &'a Start,
        steps: &'a [Step],
        documents: &[ElementId],
        none: T,
        read: impl Fn(Item) -> Evaluated<T>,
    ) -> Evaluated<Option<Vec<T>>> {
        let Some(absolute) = origin(start) else { return Ok(None) };
        let path = DocumentPath { absolute, steps };
        let shallow =
            |step: &Step| matches!(step.axis, Axis::Child | Axis::Attribute | Axis::SelfNode);
        let split = match self.worthwhile(&path, ValueTest::Present, documents)? {
            Some(split @ Split::Elements(_, rest))
                if rest.iter().all(shallow) && support::steps(steps, Use::Each) =>
            {
                split
            }
            _ if documents.len() <= FEW && support::steps(steps, Use::InOrder) => {
                let one = |&document: &ElementId| match self
                    .first_below(self.start(absolute, document)?, steps)?
                {
                    Some(item) => read(item),
                    None => Ok(none.clone()),
                };
                return documents.iter().map(one).collect::<Evaluated<Vec<T>>>().map(Some);
            }
            _ => return Ok(None),
        };
        let rest = split.rest();
        let hits = self.search().hits(split, ValueTest::Present)?;
        let reached = Reached::from(self.local.store, &hits, self.local.budget)?;
        let mut column = Vec::with_capacity(documents.len());
        for &document in documents {
            match self.first_hit(document, rest, &hits, &reached)? {
                Some(Some(item)) => column.push(read(item)?),
                Some(None) => column.push(none.clone()),
                None => return Ok(None),
            }
        }
        Ok(Some(column))
    }

    /// The first node in a document, given the elements that lead to one. None when hits are nested,
    /// so that the outer one's children may come after the inner one's.
    fn first_hit(
        &self,
        document: ElementId,
        rest: &'a [Step],
        hits: &[ElementId],
        reached: &Reached,
    ) -> Evaluated<Option<Option<Item>>> {
        if !reached.contains(document) {
            return Ok(Some(None));
        }
        let mut at = document;
        loop {
            self.local.budget.spend(1)?;
            let mut next = None;
            for child in self.local.store.children(at) {
                self.local.budget.spend(1)?;
                if let Child::Element(child) = child
                    && reached.contains(child)
                {
                    next = Some(child);
                    break;
                }
            }
            if hits.binary_search(&at).is_ok() {
                let descends = rest.iter().any(|step| step.axis == Axis::Child);
                if descends && next.is_some() {
                    return Ok(None);
                }
                return self.first_below(Item::Element(at), rest).map(Some);
            }
            at = next.expect("what contains a hit has a child that does, or is one");
        }
    }

    fn first_below(&self, item: Item, steps: &'a [Step]) -> Evaluated<Option<Item>> {
        let mut found = None;
        self.local.walk(item, steps, &mut |item| {
            found = Some(item);
            Ok(true)
        })?;
        Ok(found)
    }
}
