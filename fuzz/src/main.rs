//! Gives the target that `FUZZ_TARGET` names to libFuzzer.
//!
//! All targets are one program, since the code under test is most of it. With `FUZZ_SEEDS=FOLDER` it writes the seeds of all
//! targets, `FOLDER/TARGET/NAME`, which are equal in every run, and ends.
#![no_main]

use std::path::Path;
use std::process::exit;
use std::sync::OnceLock;

use zkmoe_fuzz::{Target, target, targets};

static CHOSEN: OnceLock<&Target> = OnceLock::new();

fn write_seeds(folder: &Path) {
    for target in targets::ALL {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder).expect("a folder that can be made");
        (target.prepare)();
        for (name, bytes) in (target.seeds)() {
            std::fs::write(folder.join(name), bytes).expect("a file that can be written");
        }
    }
}

fn start() {
    if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
        write_seeds(Path::new(&folder));
        exit(0);
    }
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let Some(target) = target(&name) else {
        eprintln!("FUZZ_TARGET has to name a target:");
        targets::ALL.iter().for_each(|t| eprintln!("  {}", t.name));
        exit(2);
    };
    // So that the first input is not the one that waits for it.
    (target.prepare)();
    CHOSEN.get_or_init(|| target);
}

libfuzzer_sys::fuzz_target!(init: start(), |data: &[u8]| {
    CHOSEN.get().expect("it was chosen at the start").run(data);
});
