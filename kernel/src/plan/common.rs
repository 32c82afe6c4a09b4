//! Columns over what documents have in common.

use std::rc::Rc;

use crate::eval::Evaluated;
use crate::image::ElementId;
use crate::xpath::ir::{BoolExpr, NodeSet, NumExpr, StrExpr};
use crate::xpath::parts::{Part, Use};

use super::agreement::Agreement;
use super::anchors::split;
use super::columns::{Columns, Common, FEW, document_paths};
use super::dag::Layers;
use super::needs::Needs;
use super::places::Places;
use super::reach::Reached;

/// Where more of the documents than one of so many differ from what they have in common, all are
/// asked about.
const DIFFERENT: usize = 4;
/// Where documents differ at more elements than so many each, what they have in common is not looked for.
const EACH: usize = 3;

/// Where documents differ from what they have in common, as far as an operator can tell.
#[derive(Debug)]
pub enum Known {
    /// At these elements.
    At(Vec<ElementId>),
    /// At more than so many.
    More(usize),
}

/// What is asked of documents.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a>(Part<'a>);

impl<'a> Question<'a> {
    pub fn bool(expr: &'a BoolExpr) -> Self {
        Question(Part::Bool(expr))
    }

    pub fn num(expr: &'a NumExpr) -> Self {
        Question(Part::Num(expr))
    }

    fn needs(self) -> Needs<'a> {
        match self.0 {
            Part::Bool(expr) => Needs::of_bool(expr),
            Part::Num(expr) => Needs::of_num(expr),
            // Neither is asked of documents.
            Part::Str(_) | Part::Set(..) => Needs::nothing(),
        }
    }

    /// It is known by its place in memory, which it keeps while an expression is evaluated.
    fn key(self) -> Key {
        match self.0 {
            Part::Bool(expr) => std::ptr::from_ref(expr) as usize,
            Part::Num(expr) => std::ptr::from_ref(expr) as usize,
            Part::Str(expr) => std::ptr::from_ref(expr) as usize,
            Part::Set(set, _) => std::ptr::from_ref(set) as usize,
        }
    }

    /// Whether it is mostly answered without looking at rows that differ.
    fn is_by_postings(self) -> bool {
        match self.0 {
            Part::Bool(
                BoolExpr::Exists(set)
                | BoolExpr::SetText(_, set, StrExpr::Const(_))
                | BoolExpr::SetNumber(_, set, NumExpr::Const(_)),
            ) => are_split(set, Use::Any),
            // The first nodes are soon found.
            Part::Bool(BoolExpr::Texts(..) | BoolExpr::Contains(..) | BoolExpr::StartsWith(..)) => {
                true
            }
            Part::Num(NumExpr::Count(set) | NumExpr::Sum(set)) => are_split(set, Use::Each),
            Part::Num(NumExpr::Text(_) | NumExpr::Length(_)) => true,
            _ => false,
        }
    }
}

/// Whether postings say where the paths of a set begin.
fn are_split(set: &NodeSet, used: Use) -> bool {
    document_paths(set, used)
        .is_some_and(|paths| paths.iter().all(|path| split(path.steps).is_some()))
}

/// What a question is known by.
pub type Key = usize;

/// Asks about documents by the columns of their store.
type Ask<'f, 'a, T> = &'f dyn Fn(&Columns<'a>, &[ElementId]) -> Evaluated<Vec<T>>;

impl<'a> Columns<'a> {
    /// Asks about documents where they differ from what they have in common, and else about that. What is
    /// evaluated over distinct subtrees finds itself what they have in common, by [`Columns::layers`].
    pub(super) fn in_common<T: Copy>(
        &self,
        question: Question<'a>,
        documents: &[ElementId],
        ask: Ask<'_, 'a, T>,
    ) -> Evaluated<Vec<T>> {
        let needs = question.needs();
        if question.is_by_postings() {
            return self.split_by(question, &needs, documents, ask);
        }
        self.differences(question, &needs, documents.len() * EACH)?;
        ask(self, documents)
    }

    /// As `in_common`, where it has been looked for differences.
    pub(super) fn split<T: Copy>(
        &self,
        question: Question<'a>,
        documents: &[ElementId],
        ask: Ask<'_, 'a, T>,
    ) -> Evaluated<Vec<T>> {
        if !self.known.borrow().contains_key(&question.key()) {
            return ask(self, documents);
        }
        self.split_by(question, &question.needs(), documents, ask)
    }

    /// Asks about the documents of the skeleton, as far as those of the image are like them, and about
    /// the others where they are.
    fn split_by<T: Copy>(
        &self,
        question: Question<'a>,
        needs: &Needs<'a>,
        documents: &[ElementId],
        ask: Ask<'_, 'a, T>,
    ) -> Evaluated<Vec<T>> {
        let Some(Common { skeleton, columns }) = &self.common else { return ask(self, documents) };
        let limit = documents.len() / DIFFERENT;
        let known = self.differences(question, needs, limit)?;
        let Known::At(differences) = &*known else { return ask(self, documents) };
        if differences.len() > limit {
            return ask(self, documents);
        }
        let reached = match differences.as_slice() {
            [] => None,
            _ => Some(Reached::from(self.local.store, differences, self.local.budget)?),
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
            rows => columns.split_by(question, needs, rows, ask)?,
        };
        let of_others = if others.is_empty() { Vec::new() } else { ask(self, &others)? };
        let mut of_others = of_others.into_iter();
        let answer = |&id: &ElementId| match is_other(id) {
            true => of_others.next().expect("each was asked about"),
            false => of_rows[places.place(skeleton.row(id))],
        };
        Ok(documents.iter().map(answer).collect())
    }

    /// Where the documents differ from the skeleton, if that is at no more elements than `most`.
    fn differences(
        &self,
        question: Question<'a>,
        needs: &Needs<'a>,
        most: usize,
    ) -> Evaluated<Rc<Known>> {
        let key = question.key();
        if let Some(known) = self.known.borrow().get(&key)
            && !matches!(&**known, Known::More(least) if *least < most)
        {
            return Ok(Rc::clone(known));
        }
        let found = match &self.common {
            Some(Common { skeleton, columns }) => {
                let (image, left) = (&self.texts, &columns.texts);
                let agreement = Agreement { skeleton, image, left, below: columns, limit: most };
                agreement.differences(needs)?
            }
            None => None,
        };
        let known = Rc::new(found.map_or(Known::More(most), Known::At));
        self.known.borrow_mut().insert(key, Rc::clone(&known));
        Ok(known)
    }

    /// The rows of the documents, of which those that an operator cannot tell from what they became in
    /// the skeleton are asked about there, if it has been looked for differences.
    pub(super) fn layers(
        &self,
        question: Question<'a>,
        documents: &[ElementId],
    ) -> Evaluated<Layers<'a, '_>> {
        let mut layers = Layers::only(&self.texts);
        let is_known = |columns: &Columns<'a>| columns.known.borrow().contains_key(&question.key());
        if !is_known(self) || documents.len() <= FEW {
            return Ok(layers);
        }
        let needs = question.needs();
        let mut columns = self;
        while let Some(Common { skeleton, columns: below }) = &columns.common {
            // Where they were too many for others, they are not looked for again.
            let most = if is_known(columns) { 0 } else { documents.len() * EACH };
            let known = columns.differences(question, &needs, most)?;
            let Known::At(differences) = &*known else { break };
            layers.add(skeleton, &below.texts, differences)?;
            columns = below;
        }
        Ok(layers)
    }
}
