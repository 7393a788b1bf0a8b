//! Asks the user which model agents should use.

use soong_tui::{table::Column, text};

use super::search::Candidate;
use crate::{
    context::Context,
    exit::Failure,
    input::{Input, InputLine},
    print,
};

/// Asks for a model by its number or name. Returns `None` if the user chooses none (Ctrl-C or Ctrl-D).
pub(super) async fn ask(context: &Context<'_>, models: &[Candidate]) -> Result<Option<Candidate>, Failure> {
    let rows = models
        .iter()
        .zip(1..)
        .map(|(model, number)| vec![number.to_string(), text::safe_line(&model.name), text::safe_line(&model.origin)]);
    let rows: Vec<Vec<String>> = rows.collect();
    print::table(
        context.terminal,
        &[Column::whole("NUMBER"), Column::text("MODEL", 16), Column::text("FROM", 16).drops(1)],
        &rows,
    )?;
    let mut input = Input::of_person()?;
    loop {
        let answer = match input.next("model for agents, by number or name [1]: ", "").await? {
            InputLine::Line(answer) => answer.trim().to_owned(),
            InputLine::Key(..) => continue,
            InputLine::Discarded | InputLine::Closed => return Ok(None),
        };
        match chosen(models, &answer) {
            Some(model) => return Ok(Some(model.clone())),
            None => print::line(&format!("enter a number from 1 to {}, or the name of a model", models.len()))?,
        }
    }
}

fn chosen<'a>(models: &'a [Candidate], answer: &str) -> Option<&'a Candidate> {
    let by_number = || models.get(answer.parse::<usize>().ok()?.checked_sub(1)?);
    match answer {
        "" => models.first(),
        name => models.iter().find(|model| model.name == name).or_else(by_number),
    }
}
