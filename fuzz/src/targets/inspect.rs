//! `zkmoe inspect` on any file.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use zkmoe::commands::inspect::{Args, perform};
use zkmoe::state::StateArgs;

use super::{checkpoint, keys, notes, numbered, proofs, texts};
use crate::fixtures::{self, provider};

/// A folder of this process with the id of the micro model.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("zkmoe-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder that can be made");
        fs::write(folder.join("model.id"), fixtures::sound_id().encode()).expect("an id");
        folder
    })
}

/// Any file; where its first byte is odd, the id of the micro model is named. Whatever is reported can be printed, as text
/// and as JSON.
pub fn inspect(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let file = folder().join("file");
    fs::write(&file, data).expect("a file that can be written");
    let report = perform(&Args {
        file,
        id: (which & 1 != 0).then(|| folder().join("model.id")),
        state: StateArgs {
            folder: Some(folder().join("state")),
        },
        json: false,
    });
    match report {
        Ok(report) => {
            assert!(!report.to_string().is_empty());
            serde_json::to_string(&report).expect("a report can be written");
        }
        Err(failure) => assert!(!failure.to_string().is_empty()),
    }
}

/// One file of each kind; of proofs only the start, which is all that is read.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let id = provider().id.digest();
    let sound = fixtures::sound_id();
    let mut proof = fixtures::batches()[0].proof[..400].to_vec();
    proof[12..44].copy_from_slice(&sound.digest());
    let mut model = Vec::new();
    fixtures::model().write(&mut model).expect("a vector");
    let whole = |seeds: Vec<(String, Vec<u8>)>| seeds.into_iter().map(|(_, bytes)| bytes);
    let mut files = vec![
        proof,
        model,
        sound.encode(),
        fixtures::certificate().bytes()[..60].to_vec(),
        fixtures::rotation().parts.bytes()[..90].to_vec(),
        provider().key().encode(),
    ];
    files.extend(
        whole(keys::last_seeds())
            .skip(2)
            .map(|file| file[1..].to_vec()),
    );
    files.extend(whole(notes::seeds()));
    files.extend(whole(proofs::slip_seeds()).take(1));
    files.extend(whole(texts::reply_seeds()).take(1));
    files.extend(whole(checkpoint::config_seeds()).take(1));
    files.push(id.to_vec());
    numbered(files.into_iter().map(|file| [&[1], &file[..]].concat()))
}
