//! Manages artifacts by program: uploads a file before any run, edits it, and reads its versions.
//!
//! Needs no key: `cargo run -p soong --example keep_artifacts`

use soong::{Runtime, SessionSpec, artifact::Save};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let runtime = Runtime::builder()
        .home(home.path())
        .offline()
        .build()
        .await?;
    let session = runtime.sessions().create(SessionSpec::default()).await?;
    let owner = runtime.artifacts().owner(&session.session_id).await?;

    // A file of the user: stored immediately, under a name derived from its file name.
    let notes = "# Notes\n\n- Ship it on “Friday” — if the tests pass\n";
    let uploaded = runtime
        .artifacts()
        .upload(&owner, "my notes.md", "text/markdown", notes.into())
        .await?;
    println!(
        "uploaded {:?} as version {}",
        uploaded.label(),
        uploaded.current_version
    );

    // Matches although quotes and dash differ. The result contains the match layer and the replaced
    // text.
    let old = "Ship it on \"Friday\" - if the tests pass";
    let edited = runtime
        .artifacts()
        .edit(&owner, uploaded.label(), old, "Ship it on Monday")
        .await?;
    println!(
        "replaced {:?}, layer {:?}",
        edited.replaced.unwrap_or_default(),
        edited.layer
    );

    // Visible from every session of the same user.
    let service = runtime.artifacts().service();
    service
        .save(
            &owner,
            Save::new(
                "user:glossary",
                "text/plain",
                "run: one execution of the agent loop",
            ),
        )
        .await?;
    println!("artifacts: {}", service.list_keys(&owner).await?.join(", "));

    for version in service.list_versions(&owner, uploaded.label()).await? {
        let text = runtime
            .artifacts()
            .load(&owner, uploaded.label(), Some(version.version))
            .await?
            .text()
            .await?;
        println!(
            "version {} ({}): {}",
            version.version,
            version.update_type.as_str(),
            text.replace('\n', " ")
        );
    }
    runtime.close().await;
    Ok(())
}
