//! `soong call`: one model call without tools.

use soong::protocol::{RunMode, Setting, api::StartBody};

use super::{
    host::builder,
    run::{check_model, prompt_text, schema},
    runtime_session::RuntimeSession,
};
use crate::{
    cli, config,
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    print,
};

pub(super) async fn call(context: &Context<'_>, options: cli::Call) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    let example =
        "Give a prompt, such as `soong call \"Translate: good morning\"`, or pipe one in.";
    let prompt = Some(prompt_text(options.prompt.as_deref(), example)?);
    let expected_output_schema = options.output_schema.as_deref().map(schema).transpose()?;
    check_model(context, &settings, &home, options.agent.model.as_deref()).await?;
    let budget = options.budget.limits();
    let body = StartBody {
        prompt,
        mode: Setting::Set(RunMode::Call),
        system_prompt: options.system_prompt.into(),
        llm_params: options.agent.llm_params().into(),
        preset: options.agent.preset.into(),
        model: options.agent.model.into(),
        timeout_ms: options
            .timeout
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        budget: (!budget.is_unlimited()).then_some(budget).into(),
        expected_output_schema,
        allow_home_project: true,
        unattended: true,
        ..StartBody::default()
    };
    let mut runtime_session =
        RuntimeSession::connect(context, &home, || builder(context, &home, &settings)).await?;
    let done = runtime_session.run(body, RunDisplay::Once).await;
    runtime_session.close().await;
    let done = done?;
    if !context.global.json && !done.output_closed && context.global.verbose > 0 {
        print::error_line(&format!("call {}", done.session));
    }
    done.exit
}
