//! Cold and warm costs on one real document, and on a partition of copies that differ in serials.

use std::collections::HashMap;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;
use tagmill_kernel::xpath::Expression;

const LSHW: &str = include_str!("../tests/data/lshw.xml");
const DOCUMENTS: u32 = 1000;

/// A machine of its own: another value wherever an address or a serial stands.
fn machine(number: u32) -> String {
    LSHW.replace("logicalname", "name").replace("</product>", &format!(" {number}</product>"))
}

fn partition() -> PartitionImage {
    let mut image = PartitionImage::new();
    for slot in 0..DOCUMENTS {
        image.put(slot, &[("lshw", machine(slot).as_bytes())]).expect("lshw prints good XML");
    }
    image
}

fn expression(text: &str) -> Expression {
    Expression::new(text, &HashMap::new()).expect("the benchmark's expressions compile")
}

fn put(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("put");
    let document = machine(0);
    group.throughput(Throughput::Bytes(document.len() as u64));
    group.bench_function("into an empty image", |bencher| {
        bencher.iter(|| {
            let mut image = PartitionImage::new();
            image.put(0, &[("lshw", black_box(document.as_bytes()))])
        });
    });
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    let text = r#"//node[@id="display"]/vendor[contains(.,"NVIDIA")]"#;
    criterion.bench_function("compile", |bencher| bencher.iter(|| expression(black_box(text))));
}

fn warm(criterion: &mut Criterion) {
    let image = partition();
    let mut group = criterion.benchmark_group("warm");
    group.throughput(Throughput::Elements(u64::from(DOCUMENTS)));
    for text in [
        r#"//node[@id="nothing"]"#,
        r#"//node[@class="network"]"#,
        r#"//node[@class="processor"]/vendor = "QEMU""#,
        r#"count(//node[@id="core"]/node) > 3"#,
        r#"//node[@class="network" and position()=2]"#,
        "//node/following-sibling::node[@class]",
    ] {
        let expression = expression(text);
        group.bench_function(text, |bencher| {
            bencher.iter(|| evaluate(&image, &expression, None, &Budget::new(u64::MAX)));
        });
    }
    group.finish();
}

criterion_group!(benches, put, compile, warm);
criterion_main!(benches);
