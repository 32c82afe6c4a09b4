//! Whether a text occurs in string-values, without building them.
//!
//! The automaton of Knuth, Morris and Pratt is run over the texts of an element. What state it is in
//! after a distinct subtree is kept, mostly from the first state on, so that each is run over once.

use std::cell::RefCell;

use hashbrown::HashMap;

use super::local::Local;
use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::intern::StrId;

/// How many bytes of the text have been seen.
type State = u32;

/// Looks for one text in one store.
pub struct Finder {
    wanted: Box<[u8]>,
    /// How many of the first bytes are also the last of so many and one.
    falls: Vec<State>,
    /// One above the state after each text and each element, begun in the first state.
    texts: RefCell<Vec<State>>,
    elements: RefCell<Vec<State>>,
    others: RefCell<HashMap<(ElementId, State), State>>,
}

impl Finder {
    /// Looks for a text that is not empty.
    pub fn new(wanted: &str, local: Local<'_>) -> Evaluated<Self> {
        let (elements, texts) = (local.store.elements().len(), local.store.strings().len());
        local.budget.spend(1 + wanted.len() + (elements + texts) / 64)?;
        let wanted: Box<[u8]> = wanted.as_bytes().into();
        let mut falls = vec![0; wanted.len()];
        for index in 1..wanted.len() {
            let mut state = falls[index - 1];
            while state > 0 && wanted[state as usize] != wanted[index] {
                state = falls[state as usize - 1];
            }
            falls[index] = state + State::from(wanted[state as usize] == wanted[index]);
        }
        Ok(Finder {
            wanted,
            falls,
            texts: RefCell::new(vec![0; texts]),
            elements: RefCell::new(vec![0; elements]),
            others: RefCell::default(),
        })
    }

    /// Whether the string-value of an element contains the text.
    pub fn finds(&self, local: Local<'_>, id: ElementId) -> Evaluated<bool> {
        Ok(self.after_element(local, id, 0)? == self.found())
    }

    fn found(&self) -> State {
        self.wanted.len() as State
    }

    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn after_element(&self, local: Local<'_>, id: ElementId, from: State) -> Evaluated<State> {
        let known = match from {
            0 => self.elements.borrow()[id as usize].checked_sub(1),
            _ => self.others.borrow().get(&(id, from)).copied(),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let mut state = from;
        for child in local.store.children(id) {
            local.budget.spend(1)?;
            state = match child {
                Child::Element(child) => self.after_element(local, child, state)?,
                Child::Text(text) => self.after_text(local, text, state)?,
                _ => state,
            };
            if state == self.found() {
                break;
            }
        }
        match from {
            0 => self.elements.borrow_mut()[id as usize] = state + 1,
            _ => drop(self.others.borrow_mut().insert((id, from), state)),
        }
        Ok(state)
    }

    fn after_text(&self, local: Local<'_>, id: StrId, from: State) -> Evaluated<State> {
        if from > 0 {
            let text = local.store.strings().get(id);
            local.budget.spend(text.len() / 4)?;
            return Ok(self.run(text.as_bytes(), from));
        }
        if let Some(known) = self.texts.borrow()[id as usize].checked_sub(1) {
            return Ok(known);
        }
        let text = local.store.strings().get(id);
        local.budget.spend(text.len() / 4)?;
        let state = match memchr::memchr(self.wanted[0], text.as_bytes()) {
            Some(start) => self.run(&text.as_bytes()[start..], 0),
            None => 0,
        };
        self.texts.borrow_mut()[id as usize] = state + 1;
        Ok(state)
    }

    fn run(&self, text: &[u8], mut state: State) -> State {
        for &byte in text {
            while state > 0 && self.wanted[state as usize] != byte {
                state = self.falls[state as usize - 1];
            }
            state += State::from(self.wanted[state as usize] == byte);
            if state == self.found() {
                break;
            }
        }
        state
    }
}
