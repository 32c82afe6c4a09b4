//! The bound of an evaluation, in steps: one step for a node, a row of an index or an operator, and
//! one for 16 bytes of text.
//!
//! Whatever takes time in proportion to a document, a partition or an expression spends as much, so
//! that a step is never worth more than some ten nanoseconds.

use std::cell::Cell;

use crate::error::BudgetExceeded;

/// Steps that are left to one expression in one call.
#[derive(Debug)]
pub struct Budget(Cell<u64>);

impl Budget {
    /// A budget of `steps`.
    pub fn new(steps: u64) -> Self {
        Budget(Cell::new(steps))
    }

    /// Takes `steps`, or fails when fewer are left.
    #[inline]
    pub fn spend(&self, steps: usize) -> Result<(), BudgetExceeded> {
        match self.0.get().checked_sub(steps as u64) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(BudgetExceeded),
        }
    }

    /// How many steps are left.
    pub fn left(&self) -> u64 {
        self.0.get()
    }

    /// Takes the steps that reading `text` costs.
    #[inline]
    pub fn read(&self, text: &str) -> Result<(), BudgetExceeded> {
        self.spend(1 + text.len() / 16)
    }
}
