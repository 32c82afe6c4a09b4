//! Any text as an expression: no panic, and what compiles evaluates within its budget.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::{evaluate, explain};
use tagmill_kernel::xpath::Expression;

const DOCUMENT: &[u8] = b"<list><node id='a' class='b'>1<!--c--><?p d?><node>2</node></node></list>";

fuzz_target!(|text: &str| {
    if let Ok(expression) = Expression::new(text, &HashMap::new()) {
        let mut image = PartitionImage::new();
        image.put(0, &[("lshw", DOCUMENT)]).expect("a good document");
        let _ = evaluate(&image, &expression, None, &Budget::new(100_000));
        let _ = explain(&expression);
    }
});
