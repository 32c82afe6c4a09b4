//! Any bytes as a document: no panic, and what is accepted can be evaluated, also once it was saved
//! and opened.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;
use tagmill_kernel::xpath::Expression;

fuzz_target!(|bytes: &[u8]| {
    let mut image = PartitionImage::new();
    if image.put(0, &[("lshw", bytes)]).is_ok() {
        let all =
            Expression::new("count(//node() | //@*) > 0", &HashMap::new()).expect("it compiles");
        let saved = image.to_bytes();
        let opened = PartitionImage::from_bytes(&saved).expect("what was saved can be opened");
        assert_eq!(opened.to_bytes(), saved);
        for image in [image, opened] {
            assert_eq!(evaluate(&image, &all, None, &Budget::new(u64::MAX)), Ok(vec![1]));
        }
    }
});
