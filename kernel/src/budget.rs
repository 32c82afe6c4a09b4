//! The bound of an evaluation, in steps: about one step for a node visited or for 16 bytes of text.

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

    /// Takes the steps that reading `text` costs.
    #[inline]
    pub fn read(&self, text: &str) -> Result<(), BudgetExceeded> {
        self.spend(1 + text.len() / 16)
    }
}
