import com.hivemq.embedded.EmbeddedExtension;
import com.hivemq.embedded.EmbeddedHiveMQ;
import com.hivemq.extension.sdk.api.ExtensionMain;
import com.hivemq.extension.sdk.api.auth.SimpleAuthenticator;
import com.hivemq.extension.sdk.api.auth.parameter.TopicPermission;
import com.hivemq.extension.sdk.api.parameter.*;
import com.hivemq.extension.sdk.api.services.Services;
import com.hivemq.extension.sdk.api.services.builder.Builders;
import java.nio.file.Path;

/** HiveMQ CE in FOLDER, whose config.xml is in FOLDER/conf; anyone may connect, and nobody may publish to the filters. */
public class HiveMq {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        ExtensionMain access = new ExtensionMain() {
            @Override
            public void extensionStart(ExtensionStartInput input, ExtensionStartOutput output) {
                Services.securityRegistry().setAuthenticatorProvider(ignored -> (SimpleAuthenticator) (in, out) -> {
                    for (int i = 1; i < arguments.length; i++) {
                        out.getDefaultPermissions().add(Builders.topicPermission().topicFilter(arguments[i])
                            .activity(TopicPermission.MqttActivity.PUBLISH)
                            .type(TopicPermission.PermissionType.DENY).build());
                    }
                    out.getDefaultPermissions().add(Builders.topicPermission().topicFilter("#").build());
                    out.authenticateSuccessfully();
                });
            }

            @Override
            public void extensionStop(ExtensionStopInput input, ExtensionStopOutput output) {}
        };
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(folder.resolve("conf"))
            .withDataFolder(folder.resolve("data"))
            .withExtensionsFolder(folder.resolve("extensions"))
            .withEmbeddedExtension(EmbeddedExtension.builder().withId("access").withName("access").withVersion("1")
                .withAuthor("Hushmote").withPriority(0).withStartPriority(1000).withExtensionMain(access).build())
            .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        broker.start().join();
    }
}
