//! Runs every target on its seeds and on what was found once, as CI does without libFuzzer.
//!
//! It is one test, since the limit on what an input may allocate is one of the whole process.

use std::fs;
use std::io::Write;
use std::path::Path;

use zkmoe_fuzz::{target, targets};

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder that can be read");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let bytes = fs::read(&path).expect("a file that can be read");
            (path.display().to_string(), bytes)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn seeds_and_what_was_found_once_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for entry in fs::read_dir(&folder).expect("the folder of regressions") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(target(&name).is_some(), "{name} in {}", folder.display());
    }
    for target in targets::ALL {
        // An input that takes too much memory ends the process, and what is captured with it.
        let _ = writeln!(std::io::stderr(), "target {}", target.name);
        let own = folder.join(target.name);
        let found = if own.is_dir() {
            files(&own)
        } else {
            Vec::new()
        };
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (name, input) in seeds.into_iter().chain(found) {
            println!("{name}");
            target.run(&input);
        }
    }
}
