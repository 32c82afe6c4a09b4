use tagmill_kernel::image::PartitionImage;
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let mut docs = Vec::new();
    for e in std::fs::read_dir(dir).unwrap() {
        docs.push(std::fs::read(e.unwrap().path()).unwrap());
    }
    for _ in 0..3 {
        let t = std::time::Instant::now();
        let mut im = PartitionImage::new();
        for (i, d) in docs.iter().enumerate() {
            im.put(i as u32, &[("lshw", d)]).unwrap();
        }
        println!("{:?} per doc, {}", t.elapsed() / docs.len() as u32, im.nbytes());
    }
}
